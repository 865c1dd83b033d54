#include <sluice/fabric/tcp/acceptor.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <iterator>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/base/log.h>

namespace sluice::fabric {
namespace {

constexpr int kAcceptsPerEvent = 64;  // then others have their turn
constexpr auto kRest = std::chrono::milliseconds(100);

}  // namespace

Acceptor::Acceptor(base::EpollLoop& loop, base::Fd listener, const StreamMaker& maker,
                   const TcpOptions& options, base::Guarded<Counters>& counters, Proved proved)
    : loop_(loop),
      listener_(std::move(listener)),
      maker_(maker),
      options_(options),
      counters_(counters),
      proved_(std::move(proved)) {
  listen();
}

Acceptor::~Acceptor() {
  SLUICE_DCHECK(loop_.inLoop());
  if (resting_) {
    loop_.cancel(*resting_);
  } else {
    loop_.unwatch(listener_.get());
  }
  while (!strangers_.empty()) release(strangers_.begin());
}

void Acceptor::listen() {
  loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { acceptSome(); });
}

void Acceptor::acceptSome() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    base::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      greet(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (strangers_.empty()) return rest();
      turnAway(strangers_.begin(), Status(Code::kUnavailable, "no descriptor is left"));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    }
    // Any other error is that of one connection which ended before it was accepted.
  }
}

void Acceptor::rest() {
  loop_.unwatch(listener_.get());
  resting_ = loop_.after(kRest, [this] {
    resting_.reset();
    listen();
  });
}

void Acceptor::greet(base::Fd socket) {
  if (strangers_.size() >= options_.maxStrangers) {
    turnAway(strangers_.begin(), Status(Code::kUnavailable, "too many strangers at once"));
  }
  const Address peer = Address::peerOf(socket.get());
  if (!peer.isSet()) return;  // it has gone already
  strangers_.push_back({maker_.server(std::move(socket), peer), {}});
  const auto stranger = std::prev(strangers_.end());
  stranger->deadline = loop_.after(options_.handshakeDeadline, [this, stranger] {
    turnAway(stranger, Status(Code::kTimeout, "no proof of the job key in time"));
  });
  advance(stranger);
}

void Acceptor::advance(Strangers::iterator stranger) {
  Stream& stream = *stranger->stream;
  const Io io = stream.handshake();
  switch (io.outcome) {
    case Io::Outcome::kMoved: return proved_(release(stranger));
    case Io::Outcome::kEnd: return turnAway(stranger, Status(Code::kPeerLost, "it hung up"));
    case Io::Outcome::kFailed: return turnAway(stranger, io.status);
    case Io::Outcome::kWait:
      loop_.watch(stream.fd(), stream.handshakeEvents(), [this, stranger](uint32_t) { advance(stranger); });
  }
}

void Acceptor::turnAway(Strangers::iterator stranger, const Status& why) {
  log("fabric").debug("turned away {}: {}", Address::peerOf(stranger->stream->fd()).toString(),
                      why.message());
  counters_.with([](Counters& counters) { ++counters.strangers; });
  release(stranger);
}

std::unique_ptr<Stream> Acceptor::release(Strangers::iterator stranger) {
  loop_.cancel(stranger->deadline);
  loop_.unwatch(stranger->stream->fd());
  auto stream = std::move(stranger->stream);
  strangers_.erase(stranger);
  return stream;
}

}  // namespace sluice::fabric
