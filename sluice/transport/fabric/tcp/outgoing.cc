#include <sluice/transport/fabric/tcp/outgoing.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::fabric {
namespace {

using Outcome = Io::Outcome;

constexpr size_t kPiecesPerWrite = 64;
constexpr auto kStalledAfter = std::chrono::milliseconds(20);
constexpr auto kFirstPause = std::chrono::milliseconds(20);

iovec pieceOf(const std::byte* data, size_t bytes) {
  return {.iov_base = const_cast<std::byte*>(data), .iov_len = bytes};
}

}  // namespace

Outgoing::Outgoing(net::EpollLoop& loop, const StreamClaim& claim, Address address,
                   const StreamMaker& maker, const TcpOptions& options,
                   base::Guarded<Counters>& counters, Owner& owner)
    : loop_(loop),
      claim_(claim),
      address_(std::move(address)),
      maker_(maker),
      options_(options),
      counters_(counters),
      owner_(owner),
      giveUpAt_(loop.now() + options.connectDeadline) {}

Outgoing::~Outgoing() {
  SLUICE_CHECK(state_ == State::kEnded && queue_.empty());
}

void Outgoing::connect() {
  ++attempts_;
  state_ = State::kConnecting;
  // One timer serves the attempt and, in retryOrFail(), the pause before the next one. It runs
  // until the welcome has come, because a peer may accept a connection and then say nothing: a
  // full queue of strangers looks like that.
  timer_ = loop_.after(
      std::max<Duration>(giveUpAt_ - loop_.now(), Duration::zero()), [self = weak_from_this()] {
        const auto outgoing = self.lock();
        if (!outgoing) return;
        outgoing->timer_.reset();
        outgoing->retryOrFail(Status(
            Code::kTimeout, fmt::format("{} did not answer in {} s", outgoing->address_.toString(),
                                        base::seconds(outgoing->options_.connectDeadline))));
      });
  connecting_ = net::Fd(::socket(address_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!connecting_.valid()) return retryOrFail(base::fromErrno("cannot open a socket"));
  if (::connect(connecting_.get(), address_.raw(), address_.rawSize()) != 0 &&
      errno != EINPROGRESS) {
    return retryOrFail(base::fromErrno(fmt::format("cannot connect to {}", address_.toString())));
  }
  watchFor(EPOLLOUT);
}

void Outgoing::retryOrFail(const Status& why) {
  SLUICE_DCHECK(state_ != State::kOpen && state_ != State::kEnded);
  closeStream(/*atOnce=*/true);
  // Another attempt helps neither against another key nor where nobody listens. Any other failure
  // may be a full queue of strangers at the other end.
  const bool isFinal = why.code() == Code::kRefused || why.code() == Code::kPermissionDenied ||
                       why.code() == Code::kUnavailable;
  const Duration pause = kFirstPause * (1 << std::min(attempts_, 6));
  if (isFinal || loop_.now() + pause >= giveUpAt_) {
    return owner_.outgoingLost(claim_.destination, why);
  }
  state_ = State::kResting;
  timer_ = loop_.after(pause, [self = weak_from_this()] {
    const auto outgoing = self.lock();
    if (!outgoing) return;
    outgoing->timer_.reset();
    outgoing->connect();
  });
}

void Outgoing::watchFor(uint32_t events) {
  if (isWatching_ && watched_ == events) return;
  watched_ = events;
  isWatching_ = true;
  loop_.watch(stream_ ? stream_->fd() : connecting_.get(), events,
              [self = shared_from_this()](uint32_t ready) { self->onEvents(ready); });
}

void Outgoing::closeStream(bool atOnce) {
  // The watch holds a reference to this object, and epoll holds the descriptor: both go before
  // the stream that owns the descriptor. A half-read header belongs to the connection that ends
  // here.
  if (timer_) loop_.cancel(*std::exchange(timer_, std::nullopt));
  const int fd = stream_ ? stream_->fd() : connecting_.get();
  if (std::exchange(isWatching_, false)) loop_.unwatch(fd);
  if (atOnce && fd >= 0) closeWithReset(fd);
  stream_.reset();
  connecting_.reset();
  reverseBytes_ = 0;
}

void Outgoing::onEvents(uint32_t events) {
  switch (state_) {
    case State::kConnecting: return finishConnect();
    case State::kProving: return prove();
    case State::kAwaitingWelcome:
      // The last message of a TLS handshake may still lie in the stream's memory. Nothing else
      // would send it, as no message is written before the welcome.
      if (stream_->hasUnflushed()) {
        if (const Io io = stream_->flush(); io.outcome == Outcome::kFailed)
          return retryOrFail(io.status);
        watchForWhatIsLeft();
      }
      return readReverse();
    case State::kOpen:
      // Reads first: a goodbye explains why writing fails.
      if ((events & ~uint32_t{EPOLLOUT}) != 0) readReverse();
      if (state_ == State::kOpen && (events & EPOLLOUT) != 0) writeSome();
      return;
    case State::kResting:
    case State::kEnded: return;
  }
}

void Outgoing::finishConnect() {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0)
    return retryOrFail(
        base::fromErrno(fmt::format("cannot connect to {}", address_.toString()), error));
  loop_.unwatch(connecting_.get());
  isWatching_ = false;
  stream_ = maker_.client(std::move(connecting_), address_, claim_.toBytes());
  state_ = State::kProving;
  prove();
}

void Outgoing::prove() {
  const Io io = stream_->handshake();
  switch (io.outcome) {
    case Outcome::kEnd:
      return retryOrFail(
          Status(Code::kPeerLost,
                 fmt::format(
                     "{} hung up during the handshake; check that both ranks have the same job key",
                     address_.toString())));
    case Outcome::kFailed: return retryOrFail(io.status);
    case Outcome::kWait: return watchFor(stream_->handshakeEvents());
    case Outcome::kMoved: break;
  }
  state_ = State::kAwaitingWelcome;
  keys_ = stream_->sessionKeys();
  check_ = wire::PayloadCheck(stream_->payloadCheck(), keys_.send);
  watchForWhatIsLeft();
  readReverse();
}

void Outgoing::readReverse() {
  // This direction carries two headers in the life of a connection, but it is also where a
  // broken connection shows first. Until the welcome, any failure may be worth another attempt,
  // since no message has left the queue; afterwards a repetition could deliver a message twice,
  // so the peer is lost. An end after our goodbye is its receipt: the peer has read all.
  while (true) {
    const iovec rest{reverse_.data() + reverseBytes_, reverse_.size() - reverseBytes_};
    const Io io = stream_->read({&rest, 1});
    if (io.outcome == Outcome::kWait) return;
    if (io.outcome != Outcome::kMoved) {
      const Status why = io.outcome == Outcome::kFailed
                             ? io.status
                             : Status(Code::kPeerLost, "it closed the connection");
      if (state_ == State::kAwaitingWelcome) {
        return retryOrFail(
            io.outcome == Outcome::kFailed
                ? why
                : Status(
                      Code::kPeerLost,
                      fmt::format("{} refused this rank's connection; check that both ranks have "
                                  "the same job key and are of the same membership epoch {}",
                                  address_.toString(), index(claim_.epoch))));
      }
      if (saidGoodbye_ && queue_.empty())
        return owner_.outgoingEnded(claim_.destination, claim_.lane);
      return owner_.outgoingLost(claim_.destination, why);
    }
    reverseBytes_ += io.bytes;
    if (reverseBytes_ < reverse_.size()) continue;
    reverseBytes_ = 0;
    const wire::Expectations expected{.epoch = claim_.epoch,
                                      .source = claim_.destination,
                                      .destination = claim_.source,
                                      .lane = claim_.lane,
                                      .sequence = reverseSequence_++,
                                      .maxLength = 0};
    const auto opened = wire::open(reverse_, keys_.receive, expected);
    if (const auto* drop = std::get_if<wire::Drop>(&opened)) {
      counters_.with([&](Counters& counters) { counters.drops.count(*drop); });
      return owner_.outgoingLost(
          claim_.destination,
          Status(Code::kDataLoss,
                 fmt::format("it answered with a wrong header: {}", wire::name(*drop))));
    }
    if (wire::has(std::get<wire::Header>(opened).flags, wire::Flags::kGoodbye)) {
      return owner_.outgoingGoodbye(claim_.destination);
    }
    // Two headers at most come this way, so no peer can keep us reading here.
    if (state_ != State::kAwaitingWelcome) {
      return owner_.outgoingLost(claim_.destination,
                                 Status(Code::kDataLoss, "it sent its welcome twice"));
    }
    state_ = State::kOpen;
    loop_.cancel(*std::exchange(timer_, std::nullopt));
    counters_.with([](Counters& counters) { ++counters.connections; });
    lastProgress_ = loop_.now();
    scheduleWrite();
    owner_.outgoingHeard(claim_.destination);
  }
}

void Outgoing::push(const Message& message, ConstBuffer payload, Done done) {
  SLUICE_DCHECK(state_ != State::kEnded && !saidGoodbye_);
  // Time in which nothing was queued is no stall. Without this a lane would be taken for stuck
  // at its first message after a pause, and less urgent lanes would write beside it.
  if (queue_.empty()) lastProgress_ = loop_.now();
  queue_.push_back({.header = makeHeader(message, claim_.epoch, claim_.source, claim_.destination,
                                         claim_.lane, nextSequence_++, payload.bytes),
                    .payload = payload,
                    .done = std::move(done)});
  scheduleWrite();
}

void Outgoing::sayGoodbye() {
  SLUICE_DCHECK(state_ == State::kOpen && queue_.empty());
  saidGoodbye_ = true;
  queue_.push_back({.header = makeGoodbye(claim_.epoch, claim_.source, claim_.destination,
                                          claim_.lane, nextSequence_++),
                    .payload = {},
                    .done = nullptr});
  scheduleWrite();
}

void Outgoing::hold(bool isHeld) {
  if (std::exchange(isHeld_, isHeld) && !isHeld) scheduleWrite();
}

bool Outgoing::isMoving() const {
  return state_ == State::kOpen && hasQueued() && loop_.now() - lastProgress_ < kStalledAfter;
}

// Messages that are pushed together are written together.
void Outgoing::scheduleWrite() {
  if (state_ != State::kOpen || isCompleting_ || std::exchange(isWriteScheduled_, true)) return;
  loop_.post([self = weak_from_this()] {
    const auto outgoing = self.lock();
    if (!outgoing) return;
    outgoing->isWriteScheduled_ = false;
    if (outgoing->state_ == State::kOpen) outgoing->writeSome();
  });
}

// Collects the next bytes to write, in order. Bytes are checked when they are first offered, right
// before the kernel copies them.
size_t Outgoing::gather(std::span<iovec> pieces) {
  const size_t most =
      check_.kind() == wire::PayloadCheckKind::kNone ? kBytesPerEvent : kCheckedBytesPerCall;
  size_t count = 0;
  size_t skip = written_;
  size_t bytes = 0;
  // True iff all of it is offered. A piece of a very large payload at a time, so that one call does
  // not take long.
  const auto offer = [&](const std::byte* data, size_t size) {
    if (skip >= size) {
      skip -= size;
      return true;
    }
    const size_t part = std::min(size - skip, most);
    pieces[count++] = pieceOf(data + skip, part);
    bytes += part;
    return part == size - std::exchange(skip, 0);
  };
  for (Item& item : queue_) {
    if (count + 3 > pieces.size() || bytes >= most) break;
    if (!std::exchange(item.isSealed, true)) item.sealed = wire::seal(item.header, keys_.send);
    offer(item.sealed.data(), item.sealed.size());
    const size_t begin = skip;
    const bool isWhole = offer(item.payload.data, item.payload.bytes);
    const size_t trailerBytes = check_.trailerBytes(item.payload.bytes);
    if (trailerBytes > 0)
      check(item, isWhole ? item.payload.bytes : begin + pieces[count - 1].iov_len);
    if (!isWhole) break;
    offer(item.trailer.data(), trailerBytes);
  }
  return count;
}

// Continues the trailer of the first item whose trailer is not known yet.
void Outgoing::check(Item& item, size_t upTo) {
  if (item.checked >= upTo) return;
  if (item.checked == 0) check_.begin(item.header.sequence);
  check_.add({item.payload.data + item.checked, upTo - item.checked});
  item.checked = upTo;
  if (upTo == item.payload.bytes) item.trailer = check_.end();
}

void Outgoing::writeSome() {
  // A held lane stops between two calls of the kernel, so a more urgent message waits for at
  // most one of them. When a write fails, the other direction is read first: a peer that has
  // left has sent a goodbye, and that is a better reason than a broken pipe.
  std::array<iovec, kPiecesPerWrite> pieces{};
  size_t budget = kBytesPerEvent;
  while (!queue_.empty() && budget > 0 && !isHeld_) {
    const size_t count = gather(pieces);
    const Io io = stream_->write({pieces.data(), count});
    if (io.outcome == Outcome::kWait) break;
    if (io.outcome != Outcome::kMoved) {
      readReverse();
      if (state_ != State::kOpen) return;
      return owner_.outgoingLost(claim_.destination, io.status);
    }
    budget -= std::min(budget, io.bytes);
    lastProgress_ = loop_.now();
    advance(io.bytes);
    if (state_ != State::kOpen) return;
  }
  if (stream_->hasUnflushed()) {
    if (const Io io = stream_->flush(); io.outcome == Outcome::kFailed) {
      return owner_.outgoingLost(claim_.destination, io.status);
    }
  }
  watchForWhatIsLeft();
  if (hasQueued()) return;
  // The write side ends only when all bytes, the stream's own included, are with the kernel:
  // its end is the promise that nothing is missing.
  if (saidGoodbye_ && !std::exchange(endedWrites_, true)) stream_->endWrites();
  owner_.outgoingDrained(claim_.destination, claim_.lane);
}

void Outgoing::watchForWhatIsLeft() {
  const bool wantsToWrite =
      stream_->hasUnflushed() || (state_ == State::kOpen && !queue_.empty() && !isHeld_);
  watchFor(wantsToWrite ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void Outgoing::advance(size_t bytes) {
  // Completions are collected and run after the queue is in order again, because a completion
  // may push the next message or end this connection. One lock of the counters covers them all.
  written_ += bytes;
  std::vector<Done> ended;
  uint64_t messages = 0;
  uint64_t payloadBytes = 0;
  while (!queue_.empty()) {
    Item& item = queue_.front();
    const size_t whole =
        item.sealed.size() + item.payload.bytes + check_.trailerBytes(item.payload.bytes);
    if (written_ < whole || !item.isSealed) break;
    written_ -= whole;
    if (item.done) {
      ++messages;
      payloadBytes += item.payload.bytes;
      ended.push_back(std::move(item.done));
    }
    queue_.pop_front();
  }
  if (ended.empty()) return;
  counters_.with([&](Counters& counters) {
    counters.messagesSent += messages;
    counters.bytesSent += payloadBytes;
  });
  isCompleting_ = true;
  for (const Done& done : ended) done(Status());
  isCompleting_ = false;
}

void Outgoing::end(const Status& why, bool atOnce) {
  // Messages that were never written whole still owe their callers a completion. It comes after
  // the connection is closed, so no payload is read after its owner has it back.
  if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  closeStream(atOnce);
  for (Item& item : std::exchange(queue_, {})) {
    if (item.done) item.done(why);
  }
}

}  // namespace sluice::fabric
