#include <sluice/join/rendezvous/connection.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

namespace sluice::rendezvous {
namespace {

constexpr size_t kHeaderBytes = 4;
constexpr size_t kLargestFrameBytes = size_t{64} << 10;  // before sealing
constexpr uint32_t kLastFrame = uint32_t{1} << 31;
constexpr size_t kReadAtOnceBytes = size_t{64} << 10;

std::array<std::byte, kHeaderBytes> frameHeader(uint32_t word) {
  std::array<std::byte, kHeaderBytes> header{};
  for (size_t i = 0; i < kHeaderBytes; ++i)
    header[i] = static_cast<std::byte>(word >> (8 * i) & 0xff);
  return header;
}

// Makes the kernel notice a peer that is cut off without a word within half a minute, even while
// nobody sends.
void noticeSilentPeers(int socket) {
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

// Makes a Status as fromErrno() does, but kRefused if nobody listens at the address.
Status broken(std::string_view what, int error) {
  const Status status = base::fromErrno(what, error);
  return error == ECONNREFUSED ? Status(Code::kRefused, status.message()) : status;
}

}  // namespace

std::shared_ptr<Connection> Connection::start(net::EpollLoop& loop, net::Fd socket,
                                              secret::Handshake handshake, size_t largestMessage,
                                              Handlers handlers) {
  std::shared_ptr<Connection> connection(new Connection(
      loop, std::move(socket), std::move(handshake), largestMessage, std::move(handlers)));
  noticeSilentPeers(connection->socket_.get());
  // A socket that is still connecting becomes writable when it is done, well or badly.
  connection->watchFor(EPOLLIN | (connection->fillOutgoing() ? EPOLLOUT : 0U));
  return connection;
}

Connection::Connection(net::EpollLoop& loop, net::Fd socket, secret::Handshake handshake,
                       size_t largestMessage, Handlers handlers)
    : loop_(loop),
      socket_(std::move(socket)),
      peer_(Address::peerOf(socket_.get())),
      handshake_(std::move(handshake)),
      largestMessage_(largestMessage),
      handlers_(std::move(handlers)) {
  if (handshake_.done()) takeSessionKeys();
}

void Connection::takeSessionKeys() {
  secret::SessionKeys keys = handshake_.sessionKeys();
  sealer_.emplace(std::move(keys.send));
  opener_.emplace(std::move(keys.receive));
}

Connection::~Connection() {
  close();
}

void Connection::watchFor(uint32_t events) {
  if (!isOpen() || watched_ == events) return;
  watched_ = events;
  loop_.watch(socket_.get(), events, [weak = weak_from_this()](uint32_t ready) {
    if (const auto self = weak.lock()) self->onEvents(ready);
  });
}

void Connection::close() {
  if (!isOpen()) return;
  loop_.unwatch(socket_.get());
  ::shutdown(socket_.get(), SHUT_RDWR);  // also if a forked child holds a copy of the socket
  socket_.reset();
  queue_.clear();
}

void Connection::fail(Status why) {
  if (!isOpen()) return;
  // The handler runs last and at most once: it may destroy this connection, so nothing after it
  // may touch a member.
  close();
  if (handlers_.closed) std::exchange(handlers_.closed, nullptr)(std::move(why));
}

void Connection::send(std::string message) {
  send(std::move(message), nullptr);
}

void Connection::send(std::string head, std::shared_ptr<const std::string> body) {
  SLUICE_DCHECK(loop_.inLoop());
  SLUICE_CHECK(!head.empty());
  if (!isOpen()) return;
  const bool hasBody = body && !body->empty();
  queue_.push_back({std::make_shared<const std::string>(std::move(head)), !hasBody});
  if (hasBody) queue_.push_back({std::move(body), true});
  flush();
}

void Connection::onEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if (isOpen() && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) readSome();
}

bool Connection::fillOutgoing() {
  // Messages are sealed one frame at a time, just before they are sent. So an answer that
  // thousands of ranks share lies in memory once, in plain form, and a rank that reads slowly
  // holds up one frame of it.
  if (outgoingOffset_ < outgoing_.size()) return true;
  outgoing_.clear();
  outgoingOffset_ = 0;
  if (const auto handshake = handshake_.takeToSend(); !handshake.empty()) {
    outgoing_.assign(reinterpret_cast<const char*>(handshake.data()), handshake.size());
    return true;
  }
  if (!sealer_ || queue_.empty()) {
    outgoing_.shrink_to_fit();  // thousands of ranks wait with nothing to say
    return false;
  }
  const Part& part = queue_.front();
  const size_t bytes = std::min(kLargestFrameBytes, part.bytes->size() - queueOffset_);
  const bool endsPart = queueOffset_ + bytes == part.bytes->size();
  const auto header = frameHeader(static_cast<uint32_t>(bytes + secret::kSealBytes) |
                                  (endsPart && part.endsMessage ? kLastFrame : 0U));
  outgoing_.assign(reinterpret_cast<const char*>(header.data()), header.size());
  sealer_->seal(std::as_bytes(std::span(*part.bytes)).subspan(queueOffset_, bytes), header,
                outgoing_);
  queueOffset_ += bytes;
  if (endsPart) {
    queue_.pop_front();
    queueOffset_ = 0;
  }
  return true;
}

void Connection::flush() {
  while (isOpen() && fillOutgoing()) {
    const ssize_t sent = ::send(socket_.get(), outgoing_.data() + outgoingOffset_,
                                outgoing_.size() - outgoingOffset_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      // The read comes first, since the other end may have said why before it closed. The error is
      // kept for that read, which would not see it a second time.
      if (errno != EAGAIN) sendError_ = errno;
      watchFor(errno == EAGAIN ? EPOLLIN | EPOLLOUT : EPOLLIN);
      return;
    }
    outgoingOffset_ += static_cast<size_t>(sent);
  }
  watchFor(EPOLLIN);
}

Status Connection::ended(const char* how) const {
  return sendError_ != 0 ? broken("cannot send", sendError_) : Status(Code::kPeerLost, how);
}

void Connection::readSome() {
  if (handshake_.expectedBytes() > 0) {
    readHandshake();
  } else {
    readFrames();
  }
}

void Connection::readHandshake() {
  // Reads exactly the message that is due, never more.
  std::array<char, secret::Handshake::kLargestMessageBytes> bytes{};
  const size_t wanted = handshake_.expectedBytes() - incoming_.size();
  const ssize_t got = ::recv(socket_.get(), bytes.data(), wanted, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return fail(broken("the connection broke", errno));
  if (got == 0) return fail(ended("it closed the connection during the handshake"));
  incoming_.append(bytes.data(), static_cast<size_t>(got));
  if (incoming_.size() < handshake_.expectedBytes()) return;
  const Status status = handshake_.received(std::as_bytes(std::span(incoming_)));
  incoming_.clear();
  if (!status.isOk()) return fail(status);
  if (handshake_.done()) takeSessionKeys();
  // The last handshake message goes out before anybody is told, so that whatever `proved` sends
  // follows it in order.
  flush();
  if (isOpen() && handshake_.done() && handlers_.proved) handlers_.proved();
}

void Connection::readFrames() {
  const size_t before = incoming_.size();
  incoming_.resize(before + kReadAtOnceBytes);
  const ssize_t got = ::recv(socket_.get(), incoming_.data() + before, kReadAtOnceBytes, 0);
  // resize() below may set errno, so it is kept.
  const int error = errno;
  incoming_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0 && (error == EAGAIN || error == EINTR)) return;
  if (got < 0) return fail(broken("the connection broke", error));
  reachedEnd_ = got == 0;
  if (got == 0) return fail(ended("it closed the connection"));
  if (const Status status = takeFrames(); !status.isOk()) fail(status);
}

Status Connection::takeFrames() {
  size_t at = 0;
  while (isOpen() && incoming_.size() - at >= kHeaderBytes) {
    const auto header = std::as_bytes(std::span(incoming_)).subspan(at, kHeaderBytes);
    uint32_t word = 0;
    for (size_t i = 0; i < kHeaderBytes; ++i)
      word |= std::to_integer<uint32_t>(header[i]) << (8 * i);
    // The length comes before the seal that covers it, so it is judged first: a false one must
    // neither reserve memory nor make this end wait for bytes that never come.
    const size_t sealedBytes = word & ~kLastFrame;
    if (sealedBytes <= secret::kSealBytes ||
        sealedBytes > kLargestFrameBytes + secret::kSealBytes) {
      return {Code::kDataLoss,
              fmt::format("it sent a frame of {} bytes, which no rank sends", sealedBytes)};
    }
    if (message_.size() + sealedBytes - secret::kSealBytes > largestMessage_) {
      return {Code::kDataLoss,
              fmt::format("it sent a message of more than {} bytes", largestMessage_)};
    }
    if (incoming_.size() - at < kHeaderBytes + sealedBytes) break;
    const auto sealed = std::as_bytes(std::span(incoming_)).subspan(at + kHeaderBytes, sealedBytes);
    SLUICE_RETURN_IF_ERROR(opener_->open(sealed, header, message_));
    at += kHeaderBytes + sealedBytes;
    if ((word & kLastFrame) != 0) handlers_.received(std::exchange(message_, {}));
  }
  incoming_.erase(0, at);
  if (incoming_.empty()) incoming_.shrink_to_fit();
  return base::ok();
}

}  // namespace sluice::rendezvous
