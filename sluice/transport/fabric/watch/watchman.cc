#include <sluice/transport/fabric/watch/watchman.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::fabric {
namespace {

constexpr int kHeardLately = 2;  // intervals

// When another rank reports a rank's loss, it has this many intervals to show that it lives. That
// is a second: a rank may pause that long without being lost, also if reports of others are wrong.
constexpr int kTimeToAnswer = 4;

// Returns the reason inside the text of lostStatus().
std::string reasonOf(Rank lost, const Status& why) {
  const std::string prefix = lostStatus(lost, Status(Code::kPeerLost, "")).message();
  const std::string& text = why.message();
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

Watchman::Watchman(Loop& loop, const LivenessOptions& options, Receiver& receiver, Pulse* pulse)
    : loop_(loop), options_(options), receiver_(receiver), pulse_(pulse) {}

void Watchman::begin(Fabric& fabric) {
  SLUICE_DCHECK(loop_.inLoop());
  if (!hasStopped_) fabric_ = &fabric;
}

void Watchman::stop() {
  SLUICE_DCHECK(loop_.inLoop());
  fabric_ = nullptr;
  pulse_ = nullptr;
  if (timer_) loop_.cancel(*std::exchange(timer_, std::nullopt));
  places_.clear();
  hasStopped_ = true;
}

Watchman::Place& Watchman::at(Rank rank) {
  if (index(rank) >= places_.size()) places_.resize(index(rank) + 1);
  return places_[index(rank)];
}

Watchman::Peer* Watchman::find(Rank rank) const {
  return index(rank) < places_.size() ? places_[index(rank)].peer.get() : nullptr;
}

std::unique_ptr<Watchman::Peer> Watchman::forget(Rank rank) {
  Place& place = at(rank);
  place.isGone = true;
  return std::move(place.peer);
}

std::optional<ClockOffset> Watchman::clockOffset(Rank rank) const {
  SLUICE_DCHECK(loop_.inLoop());
  const Peer* peer = find(rank);
  return peer == nullptr ? std::nullopt : peer->offset.best();
}

void Watchman::watch(Rank rank) {
  SLUICE_DCHECK(loop_.inLoop());
  if (hasStopped_) return;
  Place& place = at(rank);
  if (place.isGone || place.peer) return;
  const TimePoint now = loop_.now();
  place.peer = std::make_unique<Peer>(now);
  if (pulse_ != nullptr) pulse_->exchangeWith(rank);
  if (timer_) return;
  nextBeat_ = now + options_.interval;
  scheduleTick(now);
}

void Watchman::scheduleTick(TimePoint now) {
  // A tick is due for the next heartbeat, but also at the very moment when a peer would have
  // been silent for too long or has failed to answer. So a loss is found on time, and the time
  // by which a tick comes late is known: Silence excuses it, because this rank itself was
  // asleep.
  due_ = nextBeat_;
  for (const Place& place : places_) {
    if (!place.peer) continue;
    due_ = std::min(due_, place.peer->silence.reaches(options_.silenceLimit));
    if (place.peer->doubt)
      due_ = std::min(due_, place.peer->doubt->reaches(kTimeToAnswer * options_.interval));
  }
  due_ = std::max(due_, now);
  timer_ = loop_.after(due_ - now, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->tick();
  });
}

void Watchman::tick() {
  timer_.reset();
  const TimePoint now = loop_.now();
  // The peer is forgotten first: its loss comes back as onPeerLost() later, and until then
  // neither a heartbeat nor a second verdict may concern it.
  for (uint32_t i = 0; i < places_.size() && fabric_ != nullptr; ++i) {
    Peer* peer = places_[i].peer.get();
    if (peer == nullptr) continue;
    if (auto loss = judge(Rank{i}, *peer, now)) {
      forget(Rank{i});
      fabric_->giveUp(Rank{i}, *std::move(loss));
    }
  }
  if (now >= nextBeat_) {
    sendBeats(now);
    nextBeat_ = now + options_.interval;
  }
  if (std::ranges::any_of(places_, [](const Place& place) { return place.peer != nullptr; }))
    scheduleTick(now);
}

// Returns the reason why the peer is lost; empty if it is not.
std::optional<Status> Watchman::judge(Rank rank, Peer& peer, TimePoint now) {
  // Excuses are taken note of before the clock is looked at, so that time for which the pulse
  // vouches is never counted as silence. A rank whose loop is busy is lost by busyLimit alone;
  // for one without a pulse only silence speaks.
  const auto heard = fabric_->lastHeard(rank);
  excuse(rank, peer, now);
  peer.silence.look(now, heard, due_);
  if (const auto busy = busyFor(rank); busy && *busy >= options_.busyLimit) {
    return Status(Code::kPeerLost,
                  fmt::format("it is busy: its loop has not turned for {:.1f} s, longer than "
                              "busy-limit; raise busy-limit if its work takes that long",
                              base::seconds(*busy)));
  }
  if (peer.silence.length(now) >= options_.silenceLimit) {
    return Status(Code::kPeerLost,
                  fmt::format("nothing heard for {:.1f} s (silence-limit), last: {}",
                              base::seconds(peer.silence.sinceHeard(now)), lastHeardOf(peer)));
  }
  if (!peer.doubt) return std::nullopt;
  const LossNotice& notice = peer.notice;
  // Anything heard of the peer after the notice is its answer.
  if (peer.silence.sinceHeard(now) < peer.doubt->sinceHeard(now)) {
    log("fabric").warn("rank {} has lost rank {}, which this rank still hears: {}", notice.witness,
                       rank, notice.why);
    peer.doubt.reset();
    return std::nullopt;
  }
  peer.doubt->look(now, std::nullopt, due_);
  if (peer.doubt->length(now) < kTimeToAnswer * options_.interval) return std::nullopt;
  return believe(rank, notice);
}

Status Watchman::believe(Rank lost, const LossNotice& notice) {
  passedOn_.insert(lost);
  return {Code::kPeerLost, fmt::format("rank {} reports: {}", notice.witness, notice.why)};
}

// Takes note of reasons for which the peer's silence says nothing.
void Watchman::excuse(Rank rank, Peer& peer, TimePoint now) {
  const auto word = pulse_ == nullptr ? std::nullopt : pulse_->lastWord(rank);
  // A loop that has turned within an interval has sent its heartbeat: then silence means a broken
  // path.
  if (word && word->busy >= options_.interval) peer.silence.excuse(word->heard);
  if (!peer.putOffAt) return;
  // The loop's messages are not being read, so only the pulse shows that its process lives.
  if (word) return peer.silence.excuse(word->heard);
  if (now - *peer.putOffAt < options_.busyLimit) peer.silence.excuse(now);
}

std::optional<Duration> Watchman::busyFor(Rank rank) const {
  SLUICE_DCHECK(loop_.inLoop());
  // An old word says nothing about now: a process that died while busy would otherwise stay
  // "busy" for ever.
  const auto word = pulse_ == nullptr ? std::nullopt : pulse_->lastWord(rank);
  const bool isBusy =
      word && word->busy >= options_.interval && loop_.now() - word->heard < options_.silenceLimit;
  return isBusy ? std::optional(word->busy) : std::nullopt;
}

std::string Watchman::lastHeardOf(const Peer& peer) const {
  if (const auto& last = peer.lastMessage)
    return fmt::format("{} of slice {} of step {}", sluice::name(last->stage), last->slice,
                       last->step);
  return peer.lastBeat ? "a heartbeat" : "nothing at all";
}

void Watchman::sendBeats(TimePoint now) {
  for (uint32_t i = 0; i < places_.size() && fabric_ != nullptr; ++i) {
    if (places_[i].peer) sendBeat(Rank{i}, now);
  }
}

void Watchman::sendBeat(Rank rank, TimePoint now) {
  Peer& peer = *find(rank);
  if (std::exchange(peer.isBeatUnderWay, true)) return;
  tell(rank,
       Heartbeat{now, peer.lastBeat, peer.lastBeat ? now - peer.lastBeatAt : Duration::zero()},
       [weak = weak_from_this(), rank](const Status&) {
         const auto self = weak.lock();
         if (Peer* sentTo = self ? self->find(rank) : nullptr) sentTo->isBeatUnderWay = false;
       });
}

void Watchman::tell(Rank rank, const LifeSign& sign, Done done) {
  Message message;
  message.flags = wire::Flags::kHeartbeat;
  const auto bytes = std::make_shared<const std::vector<std::byte>>(toBytes(sign));
  fabric_->send(rank, Lane::kControl, message, {bytes->data(), bytes->size()},
                [bytes, done = std::move(done)](const Status& status) {
                  if (done) done(status);
                });
}

Result<Landing> Watchman::onMessage(Rank from, Lane lane, const wire::Header& header) {
  // A rank that speaks to this one is watched from then on, even if nothing is ever sent to it: its
  // loss must be noticed here too. Heartbeats end here and never reach the receiver.
  if (from != header.destination) watch(from);
  if (wire::has(header.flags, wire::Flags::kHeartbeat)) return land(from, header);
  if (Peer* peer = find(from)) peer->lastMessage = {header.stage, header.slice, header.step};
  auto answer = receiver_.onMessage(from, lane, header);
  // A receiver that puts off a message of the control lane also stops the heartbeats queued
  // behind it. That silence is of our own making, so its beginning is kept for excuse().
  if (lane == Lane::kControl) {
    const bool isPutOff = answer.isOk() && answer->isLater;
    if (Peer* peer = find(from)) {
      if (!isPutOff)
        peer->putOffAt.reset();
      else if (!peer->putOffAt)
        peer->putOffAt = loop_.now();
    }
  }
  return answer;
}

Result<Landing> Watchman::land(Rank from, const wire::Header& header) {
  if (header.length > kMaxLifeSignBytes)
    return Status(Code::kRefused, "too long to be a sign of life");
  const auto bytes = std::make_shared<std::vector<std::byte>>(header.length);
  return Landing{.buffer = {bytes->data(), bytes->size()},
                 .done = [weak = weak_from_this(), from, bytes](const Status& status) {
                   const auto self = weak.lock();
                   if (!self || self->fabric_ == nullptr || !status.isOk()) return;
                   if (const auto sign = parseLifeSign(*bytes)) {
                     std::visit([&](const auto& each) { self->take(from, each); }, *sign);
                   }
                 }};
}

void Watchman::take(Rank from, const Heartbeat& beat) {
  Peer* peer = find(from);
  if (peer == nullptr) return;
  const TimePoint now = loop_.now();
  peer->lastBeat = beat.sent;
  peer->lastBeatAt = now;
  if (beat.echo) peer->offset.add({*beat.echo, beat.sent - beat.held, beat.sent, now});
}

// The notice is believed only if the lost rank does not answer a question of ours. It is passed on
// at once, so that all ask at the same time, however many ranks it goes through.
void Watchman::take(Rank from, const LossNotice& notice) {
  const Rank lost = notice.lost;
  if (index(lost) >= fabric_->worldSize() || lost == fabric_->rank()) return;
  const bool wasWatched = find(lost) != nullptr;
  watch(lost);
  Peer* peer = find(lost);
  if (peer == nullptr || peer->doubt) return;  // we know it already
  const TimePoint now = loop_.now();
  const auto heard = fabric_->lastHeard(lost);
  const bool isHeard = heard && now - *heard < kHeardLately * options_.interval;
  if (wasWatched && (isHeard || busyFor(lost))) {
    log("fabric").warn("rank {} has lost rank {}, which this rank still hears: {}", notice.witness,
                       lost, notice.why);
    return;
  }
  log("fabric").debug("rank {} says that rank {} is lost", from, lost);
  spread(notice, from);
  if (!wasWatched) {
    // This rank has no evidence of its own and does not need the lost rank. It believes at once,
    // because the ranks that reported the loss may end because of it, and would then be named in
    // its place.
    const Status why = believe(lost, notice);
    forget(lost);
    return fabric_->giveUp(lost, why);
  }
  peer->doubt.emplace(now);
  peer->notice = notice;
  sendBeat(lost, now);
  if (timer_) loop_.cancel(*timer_);
  scheduleTick(now);
}

void Watchman::onPeerLost(Rank from, const Status& why) {
  // The loss of a rank is told to others by those who noticed it themselves. A loss that was
  // learnt from a notice has been passed on with that notice already; telling it again would
  // send notices in circles.
  const std::unique_ptr<Peer> peer = forget(from);
  const bool isKnown = passedOn_.contains(from) || (peer && peer->doubt);
  if (fabric_ != nullptr && !isKnown) spread({from, fabric_->rank(), reasonOf(from, why)}, from);
  receiver_.onPeerLost(from, why);
}

void Watchman::spread(const LossNotice& notice, Rank heardFrom) {
  // The notice goes neither back to where it came from, nor to the witness who wrote it, nor to
  // the lost rank: a rank that reads of its own loss could do nothing with it.
  for (uint32_t i = 0; i < places_.size(); ++i) {
    const Rank rank{i};
    if (places_[i].peer && rank != notice.witness && rank != notice.lost && rank != heardFrom)
      tell(rank, notice, nullptr);
  }
}

void Watchman::onPeerLeft(Rank from) {
  forget(from);
  receiver_.onPeerLeft(from);
}

}  // namespace sluice::fabric
