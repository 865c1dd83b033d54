#include <sluice/secret/door/greeting.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace sluice::door {
namespace {

bool isTooEarly(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Applicant::Progress Greeting::advance() {
  while (true) {
    if (toSend_.empty()) toSend_ = handshake_.takeToSend();
    if (!toSend_.empty()) {
      const ssize_t sent = ::send(fd(), toSend_.data(), toSend_.size(), MSG_NOSIGNAL);
      if (sent < 0 && isTooEarly(errno)) return {};
      if (sent < 0) return {Step::kFailed, base::fromErrno("handshake")};
      toSend_ = toSend_.subspan(static_cast<size_t>(sent));
      continue;
    }
    if (handshake_.done()) return {Step::kProved};
    // Reads not one byte more than the message has: later bytes belong to the connection's owner.
    const size_t expected = handshake_.expectedBytes();
    const ssize_t got =
        ::recv(fd(), received_.data() + receivedBytes_, expected - receivedBytes_, 0);
    if (got < 0 && isTooEarly(errno)) return {};
    if (got < 0)
      return {Step::kFailed, Status(Code::kPeerLost, base::fromErrno("handshake").message())};
    if (got == 0)
      return {Step::kFailed, Status(Code::kPeerLost, "it hung up during the handshake")};
    receivedBytes_ += static_cast<size_t>(got);
    if (receivedBytes_ < expected) continue;
    receivedBytes_ = 0;
    if (Status status = handshake_.received({received_.data(), expected}); !status.isOk()) {
      // The last message tells a client of another key what is wrong. This side does not care if it
      // arrives.
      const auto last = handshake_.takeToSend();
      [[maybe_unused]] const ssize_t sent = ::send(fd(), last.data(), last.size(), MSG_NOSIGNAL);
      return {Step::kFailed, std::move(status)};
    }
  }
}

uint32_t Greeting::events() const {
  return toSend_.empty() ? EPOLLIN : EPOLLOUT;
}

}  // namespace sluice::door
