#include <sluice/transport/fabric/tcp/incoming.h>

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::fabric {
namespace {

using Outcome = Io::Outcome;

constexpr size_t kBufferBytes = size_t{64} << 10;

// While large payloads come, read past the end of one only enough for the next header: every byte
// more would be copied once more on its way to its place.
constexpr size_t kLargeBytes = size_t{16} << 10;
constexpr size_t kBesideLargeBytes = size_t{4} << 10;
static_assert(kBesideLargeBytes > wire::kHeaderBytes);

}  // namespace

Incoming::Incoming(net::EpollLoop& loop, std::unique_ptr<Stream> stream, const StreamClaim& claim,
                   Receiver& receiver, base::Guarded<Counters>& counters, Owner& owner)
    : loop_(loop),
      stream_(std::move(stream)),
      claim_(claim),
      receiver_(receiver),
      counters_(counters),
      owner_(owner),
      keys_(stream_->sessionKeys()),
      check_(stream_->payloadCheck(), keys_.receive),
      ahead_(kBufferBytes) {}

Incoming::~Incoming() {
  SLUICE_CHECK(state_ == State::kEnded && !landing_);
}

// The welcome tells the sender that this rank has accepted the claim: it sends no message
// before, so a refused connection loses nothing. Bytes that TLS has decrypted along with the
// handshake's last message wake no epoll, so they are asked for here.
void Incoming::start() {
  Message welcome;
  welcome.flags = wire::Flags::kHeartbeat;
  sendReverse(makeHeader(welcome, claim_.epoch, claim_.destination, claim_.source, claim_.lane,
                         reverseSequence_++,
                         /*length=*/0));
  if (state_ == State::kEnded) return;
  watchForWhatIsLeft();
  if (stream_->hasUnread()) readSome();
}

void Incoming::sendReverse(const wire::Header& header) {
  const wire::HeaderBytes sealed = wire::seal(header, keys_.send);
  reverse_.insert(reverse_.end(), sealed.begin(), sealed.end());
  // A failure needs no answer here: a read from the other end will find it too.
  [[maybe_unused]] const bool isFlushed = flushReverse();
}

// A short write leaves the rest in reverse_, and watchForWhatIsLeft() then asks for EPOLLOUT.
// After our goodbye nothing else goes this way, so the write side is ended as soon as the
// goodbye has left; reading goes on until the other end has closed too.
bool Incoming::flushReverse() {
  while (!reverse_.empty()) {
    const iovec piece{reverse_.data(), reverse_.size()};
    const Io io = stream_->write({&piece, 1});
    if (io.outcome != Outcome::kMoved) return false;
    reverse_.erase(reverse_.begin(), reverse_.begin() + static_cast<ptrdiff_t>(io.bytes));
  }
  if (stream_->hasUnflushed() && stream_->flush().outcome != Outcome::kMoved) return false;
  if (state_ == State::kDiscarding) stream_->endWrites();
  return true;
}

// While the receiver has put a message off, no reading is asked for: the kernel's buffer fills,
// TCP stops the sender, and the payload stays in the sender's memory. That is the whole flow
// control of a lane. The watch keeps `this` alive until unwatch().
void Incoming::watchForWhatIsLeft() {
  uint32_t events = state_ == State::kWaiting ? 0U : uint32_t{EPOLLIN};
  if (!reverse_.empty() || stream_->hasUnflushed()) events |= EPOLLOUT;
  if (isWatching_ && events == watched_) return;
  isWatching_ = true;
  watched_ = events;
  loop_.watch(stream_->fd(), events,
              [self = shared_from_this()](uint32_t ready) { self->onEvents(ready); });
}

void Incoming::onEvents(uint32_t events) {
  if (state_ == State::kEnded) return;
  if ((events & EPOLLOUT) != 0) {
    [[maybe_unused]] const bool isFlushed = flushReverse();
    watchForWhatIsLeft();
  }
  if (state_ == State::kWaiting) {
    // Nothing is read now, so an error here is a reset: the other end did not close in good order.
    if ((events & (EPOLLERR | EPOLLHUP)) == 0) return;
    return owner_.incomingLost(claim_.source, Status(Code::kPeerLost, "it broke the connection"));
  }
  if ((events & ~uint32_t{EPOLLOUT}) != 0) readSome();
}

// The owner may drop its reference inside any call below, so `self` keeps this object until the
// last line. Bytes in the buffer are used up before more are read, as they come first in the
// stream. The budget returns the loop to other connections, however fast this peer sends.
void Incoming::readSome() {
  const auto self = shared_from_this();
  owner_.incomingHeard(claim_.source);
  size_t budget = kBytesPerEvent;
  while (budget > 0) {
    if (!takeHeaders()) return;
    if (!readOnce(budget)) return;
  }
  // Bytes that TLS has decrypted already, or that our buffer holds, wake nobody, so a task
  // continues with them.
  if ((stream_->hasUnread() || !ahead_.unused().empty()) &&
      !std::exchange(isReadScheduled_, true)) {
    loop_.post([weak = weak_from_this()] {
      const auto incoming = weak.lock();
      if (!incoming) return;
      incoming->isReadScheduled_ = false;
      if (incoming->state_ == State::kReading || incoming->state_ == State::kDiscarding)
        incoming->readSome();
    });
  }
}

void Incoming::lose(const Status& why) {
  owner_.incomingLost(claim_.source, why);
}

// Reads past a payload of `length` bytes and what follows it.
void Incoming::skip(uint64_t length) {
  payloadLeft_ = length + check_.trailerBytes(length);
  trailerLeft_ = 0;
}

// Notes that the next `bytes` of the payload are in their place.
void Incoming::landed(size_t bytes) {
  if (trailerLeft_ > 0)
    check_.add({landing_->buffer.data + (landingHeader_.length - payloadLeft_), bytes});
  payloadLeft_ -= bytes;
  if (payloadLeft_ == 0 && trailerLeft_ == 0) finishPayload();
}

// Takes the trailer of a payload that is all there. False iff reading has to stop.
bool Incoming::takeTrailer() {
  const auto trailer = ahead_.unused().first(trailerLeft_);
  if (!check_.endsWith(trailer)) {
    counters_.with([](Counters& counters) { counters.drops.count(wire::Drop::kBadPayload); });
    lose(badPayloadStatus(landingHeader_, check_.kind()));
    return false;
  }
  ahead_.use(trailerLeft_);
  trailerLeft_ = 0;
  finishPayload();
  return true;
}

// Uses up what was read ahead, but for the beginning of a header. False iff reading has to stop.
bool Incoming::takeHeaders() {
  while (state_ == State::kReading) {
    // The meaning of the next byte follows from three fields, asked in the order of the wire:
    // the rest of a payload, its trailer, then a header. Every branch either consumes bytes and
    // goes round again, or returns because the buffer has too few. Every callback may end this
    // connection, and the loop's condition notices that.
    const std::span<const std::byte> unused = ahead_.unused();
    if (payloadLeft_ > 0) {
      const size_t part = std::min<uint64_t>(unused.size(), payloadLeft_);
      if (part == 0) return true;
      if (landing_) {
        std::memcpy(landing_->buffer.data + (landingHeader_.length - payloadLeft_), unused.data(),
                    part);
        ahead_.use(part);
        landed(part);
      } else {
        ahead_.use(part);
        payloadLeft_ -= part;
      }
      continue;
    }
    if (trailerLeft_ > 0) {
      if (unused.size() < trailerLeft_) return true;
      if (!takeTrailer()) return false;
      continue;
    }
    if (heardGoodbye_) {
      if (unused.empty()) return true;
      lose(Status(Code::kDataLoss, "it sent bytes after its goodbye"));
      return false;
    }
    if (unused.size() < wire::kHeaderBytes) return true;
    const auto sealed = unused.first<wire::kHeaderBytes>();
    // All fields but the length are known beforehand: the connection is of one epoch, one pair
    // of ranks and one lane, and messages come in sequence. A header that was replayed, dropped
    // or moved from another connection fits nothing here, even though its seal is right.
    const wire::Expectations expected{.epoch = claim_.epoch,
                                      .source = claim_.source,
                                      .destination = claim_.destination,
                                      .lane = claim_.lane,
                                      .sequence = nextSequence_};
    const auto opened = wire::open(sealed, keys_.receive, expected);
    if (const auto* drop = std::get_if<wire::Drop>(&opened)) {
      counters_.with([&](Counters& counters) { counters.drops.count(*drop); });
      // The seal of such a header was right, so its length can be believed and the stream goes
      // on behind the payload. Its number counts as used, as the sender has counted it.
      if (!wire::endsStream(*drop)) {
        skip(wire::lengthToSkip(sealed));
        ahead_.use(wire::kHeaderBytes);
        ++nextSequence_;
        continue;
      }
      lose(Status(Code::kDataLoss, fmt::format("it sent a wrong header: {}", wire::name(*drop))));
      return false;
    }
    const auto& header = std::get<wire::Header>(opened);
    ahead_.use(wire::kHeaderBytes);
    ++nextSequence_;
    if (wire::has(header.flags, wire::Flags::kGoodbye)) {
      heardGoodbye_ = true;
      owner_.incomingGoodbye(claim_.source, claim_.lane);
      continue;
    }
    if (!takeMessage(header)) return false;
  }
  return state_ == State::kDiscarding;
}

// Asks the receiver. False iff it wants to be asked later.
bool Incoming::takeMessage(const wire::Header& header) {
  // The header is consumed already, so a receiver that says "later" gets it again from asked_
  // when resume() comes. Nothing behind it is read until then: messages of a lane must not
  // overtake each other.
  auto answer = receiver_.onMessage(claim_.source, claim_.lane, header);
  if (answer.isOk() && answer->isLater) {
    asked_ = header;
    state_ = State::kWaiting;
    watchForWhatIsLeft();
    return false;
  }
  expectsLarge_ = header.length >= kLargeBytes;
  const Status fits = answer.isOk() ? checkLanding(*answer, header) : answer.status();
  if (fits.isOk()) {
    landing_ = *std::move(answer);
    landingHeader_ = header;
    payloadLeft_ = header.length;
    trailerLeft_ = check_.trailerBytes(header.length);
    if (trailerLeft_ > 0) check_.begin(header.sequence);
  } else {
    // A refused payload still has to be read, or its bytes would be taken for the next header.
    // The receiver's refusal concerns this message alone; the connection goes on.
    skip(header.length);
    const auto drop = answer.isOk() ? wire::Drop::kNoRoom : wire::Drop::kRefused;
    counters_.with([&](Counters& counters) { counters.drops.count(drop); });
    if (answer.isOk()) answer->done(fits);
  }
  if (landing_ && payloadLeft_ == 0) finishPayload();
  return true;
}

void Incoming::finishPayload() {
  counters_.with([&](Counters& counters) {
    ++counters.messagesReceived;
    counters.bytesReceived += landingHeader_.length;
  });
  // The landing leaves its field before `done` runs, because `done` may end this connection,
  // and end() would otherwise complete the landing a second time.
  std::exchange(landing_, std::nullopt)->done(Status());
}

bool Incoming::readOnce(size_t& budget) {
  if (state_ == State::kDiscarding) ahead_.clear();
  // One call of the kernel fills two places: the receiver's buffer up to the end of the
  // payload, and the read-ahead buffer for what follows. Only a read that may reach the end of
  // the payload offers the second, so a large payload comes in without a copy, and small
  // messages come in many at a time.
  std::array<iovec, 2> pieces{};
  size_t count = 0;
  size_t direct = 0;
  if (landing_ && payloadLeft_ > 0) {
    direct =
        std::min<uint64_t>(payloadLeft_, trailerLeft_ > 0 ? kCheckedBytesPerCall : kBytesPerEvent);
    pieces[count++] = {landing_->buffer.data + (landingHeader_.length - payloadLeft_), direct};
  }
  if (direct == payloadLeft_ || !landing_) {
    const bool isSkipping = !landing_ && payloadLeft_ > 0;
    const auto room = ahead_.room(expectsLarge_ && !isSkipping ? kBesideLargeBytes : kBufferBytes);
    pieces[count++] = {room.data(), room.size()};
  }
  const Io io = stream_->read({pieces.data(), count});
  if (io.outcome == Outcome::kWait) return false;
  if (io.outcome != Outcome::kMoved) {
    fallSilent(io);
    return false;
  }
  budget -= std::min(budget, io.bytes);
  const size_t inPlace = std::min(io.bytes, direct);
  ahead_.filled(io.bytes - inPlace);
  if (inPlace > 0) landed(inPlace);
  return state_ != State::kEnded;
}

void Incoming::fallSilent(const Io& io) {
  // The end of a stream is in order only after a goodbye, theirs or ours. Everything else is a
  // loss: the kernel closes the sockets of a crashed process as cleanly as those of one that
  // exits, so a clean end alone says nothing.
  const bool isInOrder =
      (io.outcome == Outcome::kEnd && heardGoodbye_) || state_ == State::kDiscarding;
  if (isInOrder) return owner_.incomingEnded(claim_.source, claim_.lane);
  owner_.incomingLost(claim_.source,
                      io.outcome == Outcome::kFailed
                          ? io.status
                          : Status(Code::kPeerLost, "it closed the connection without a goodbye"));
}

void Incoming::resume() {
  if (state_ != State::kWaiting) return;
  const auto self = shared_from_this();
  // The state changes before the receiver is asked: it may say "later" again, and takeMessage()
  // then sets the state back.
  state_ = State::kReading;
  const wire::Header header = *std::exchange(asked_, std::nullopt);
  if (!takeMessage(header)) return;
  watchForWhatIsLeft();
  readSome();
}

void Incoming::sayGoodbye(const Status& why) {
  if (state_ == State::kDiscarding || state_ == State::kEnded) return;
  state_ = State::kDiscarding;
  // From here on bytes are read only to empty the socket. Closing with unread bytes would make
  // the kernel send a reset, and a reset could destroy our goodbye before the peer has read it.
  expectsLarge_ = false;
  asked_.reset();
  payloadLeft_ = trailerLeft_ = 0;
  if (auto landing = std::exchange(landing_, std::nullopt)) landing->done(why);
  sendReverse(makeGoodbye(claim_.epoch, claim_.destination, claim_.source, claim_.lane,
                          reverseSequence_++));
  watchForWhatIsLeft();
}

void Incoming::end(const Status& why, bool atOnce) {
  // The state is set first, so that a `done` that calls back finds a connection that has ended.
  // The stream goes before `done` runs: nothing may write to a landing's buffer once its owner
  // has it back.
  if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  if (std::exchange(isWatching_, false)) loop_.unwatch(stream_->fd());
  if (atOnce) closeWithReset(stream_->fd());
  stream_.reset();
  if (auto landing = std::exchange(landing_, std::nullopt)) landing->done(why);
}

}  // namespace sluice::fabric
