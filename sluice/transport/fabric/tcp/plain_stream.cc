#include <sluice/transport/fabric/tcp/plain_stream.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace sluice::fabric {
namespace {

Io fromSystem(ssize_t result, const char* what) {
  if (result > 0) return Io::moved(static_cast<size_t>(result));
  if (result == 0) return Io::end();
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Io::wait();
  return Io::failed(base::fromErrno(what));
}

}  // namespace

void closeWithReset(int fd) {
  const linger atOnce{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &atOnce, sizeof atOnce);
  // Dissolves the connection now. close() alone would do so only with the last descriptor of the
  // socket, and a forked process may hold another one.
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  [[maybe_unused]] const int dissolved = ::connect(fd, &nobody, sizeof nobody);
}

PlainStream::PlainStream(net::Fd socket, secret::Handshake handshake,
                         wire::PayloadCheckKind payloadCheck)
    : socket_(std::move(socket)), handshake_(std::move(handshake)), payloadCheck_(payloadCheck) {}

Io PlainStream::handshake() {
  while (true) {
    if (toSend_.empty()) toSend_ = handshake_.takeToSend();
    if (!toSend_.empty()) {
      const Io io =
          fromSystem(::send(fd(), toSend_.data(), toSend_.size(), MSG_NOSIGNAL), "handshake");
      if (io.outcome != Io::Outcome::kMoved) return io;
      toSend_ = toSend_.subspan(io.bytes);
      continue;
    }
    if (handshake_.done()) return Io::moved(0);
    // Read not one byte more than the message has: the bytes that follow belong to the stream.
    const size_t expected = handshake_.expectedBytes();
    const Io io = fromSystem(
        ::recv(fd(), received_.data() + receivedBytes_, expected - receivedBytes_, 0), "handshake");
    if (io.outcome != Io::Outcome::kMoved) return io;
    receivedBytes_ += io.bytes;
    if (receivedBytes_ < expected) continue;
    receivedBytes_ = 0;
    if (Status status = handshake_.received({received_.data(), expected}); !status.isOk()) {
      // The last message tells a client of another key what is wrong. It need not arrive.
      const auto last = handshake_.takeToSend();
      [[maybe_unused]] const ssize_t sent = ::send(fd(), last.data(), last.size(), MSG_NOSIGNAL);
      return Io::failed(std::move(status));
    }
  }
}

uint32_t PlainStream::handshakeEvents() const {
  return toSend_.empty() ? EPOLLIN : EPOLLOUT;
}

Io PlainStream::read(std::span<const iovec> into) {
  // A signal that interrupts a call counts as "wait", not as a failure: epoll is
  // level-triggered and reports the socket again.
  return fromSystem(::readv(fd(), into.data(), static_cast<int>(into.size())), "receiving");
}

Io PlainStream::write(std::span<const iovec> from) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(from.data());
  message.msg_iovlen = from.size();
  return fromSystem(::sendmsg(fd(), &message, MSG_NOSIGNAL), "sending");
}

void PlainStream::endWrites() {
  ::shutdown(fd(), SHUT_WR);
}

}  // namespace sluice::fabric
