#include <sluice/fabric/watch/watchman.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/fabric/common.h>

namespace sluice::fabric {
namespace {

constexpr int kHeardLately = 2;  // intervals

// The reason inside what lostStatus() says.
std::string reasonOf(Rank lost, const Status& why) {
  const std::string prefix = lostStatus(lost, Status(Code::kPeerLost, "")).message();
  const std::string& text = why.message();
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

Watchman::Watchman(Loop& loop, const LivenessOptions& options, Receiver& receiver)
    : loop_(loop), options_(options), receiver_(receiver) {}

void Watchman::begin(Fabric& fabric) {
  SLUICE_DCHECK(loop_.inLoop());
  if (!hasStopped_) fabric_ = &fabric;
}

void Watchman::stop() {
  SLUICE_DCHECK(loop_.inLoop());
  fabric_ = nullptr;
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
  if (timer_) return;
  nextBeat_ = now + options_.interval;
  scheduleTick(now);
}

void Watchman::scheduleTick(TimePoint now) {
  due_ = nextBeat_;
  for (const Place& place : places_) {
    if (place.peer) due_ = std::min(due_, place.peer->silence.reaches(options_.silenceLimit));
  }
  due_ = std::max(due_, now);
  timer_ = loop_.after(due_ - now, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->tick();
  });
}

void Watchman::tick() {
  timer_.reset();
  const TimePoint now = loop_.now();
  std::vector<Rank> silent;
  for (uint32_t i = 0; i < places_.size() && fabric_ != nullptr; ++i) {
    Peer* peer = places_[i].peer.get();
    if (peer == nullptr) continue;
    if (peer->isControlPutOff) {
      peer->silence.excuse(now);
    } else {
      peer->silence.look(now, fabric_->lastHeard(Rank{i}), due_);
    }
    if (peer->silence.length(now) >= options_.silenceLimit) silent.push_back(Rank{i});
  }
  for (const Rank rank : silent) giveUpOn(rank, now);
  if (now >= nextBeat_) {
    sendBeats(now);
    nextBeat_ = now + options_.interval;
  }
  if (std::ranges::any_of(places_, [](const Place& place) { return place.peer != nullptr; }))
    scheduleTick(now);
}

void Watchman::giveUpOn(Rank rank, TimePoint now) {
  const std::unique_ptr<Peer> peer = forget(rank);
  const auto& last = peer->lastMessage;
  const std::string lastText =
      last ? fmt::format("{} of slice {} of step {}", plan::name(last->stage), last->slice, last->step)
      : peer->lastBeat ? "a heartbeat"
                       : "nothing at all";
  fabric_->giveUp(
      rank, Status(Code::kPeerLost, fmt::format("nothing heard for {:.1f} s, last: {}",
                                                base::seconds(peer->silence.sinceHeard(now)), lastText)));
}

void Watchman::sendBeats(TimePoint now) {
  for (uint32_t i = 0; i < places_.size() && fabric_ != nullptr; ++i) {
    Peer* peer = places_[i].peer.get();
    if (peer == nullptr || std::exchange(peer->isBeatUnderWay, true)) continue;
    tell(Rank{i}, Heartbeat{now, peer->lastBeat, peer->lastBeat ? now - peer->lastBeatAt : Duration::zero()},
         [weak = weak_from_this(), rank = Rank{i}](const Status&) {
           const auto self = weak.lock();
           if (Peer* sentTo = self ? self->find(rank) : nullptr) sentTo->isBeatUnderWay = false;
         });
  }
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
  if (from != header.destination) watch(from);
  if (wire::has(header.flags, wire::Flags::kHeartbeat)) return land(from, header);
  if (Peer* peer = find(from)) peer->lastMessage = {header.stage, header.slice, header.step};
  auto answer = receiver_.onMessage(from, lane, header);
  if (lane == Lane::kControl) {
    if (Peer* peer = find(from)) peer->isControlPutOff = answer.isOk() && answer->isLater;
  }
  return answer;
}

Result<Landing> Watchman::land(Rank from, const wire::Header& header) {
  if (header.length > kMaxLifeSignBytes) return Status(Code::kRefused, "too long to be a sign of life");
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

void Watchman::take(Rank from, const LossNotice& notice) {
  if (index(notice.lost) >= fabric_->worldSize() || notice.lost == fabric_->rank()) return;
  const auto heard = fabric_->lastHeard(notice.lost);
  if (find(notice.lost) != nullptr && heard && loop_.now() - *heard < kHeardLately * options_.interval) {
    log("fabric").warn("rank {} has lost rank {}, which this rank still hears: {}", notice.witness,
                       notice.lost, notice.why);
    return;
  }
  log("fabric").debug("rank {} says that rank {} is lost", from, notice.lost);
  heardOf_.emplace(notice.lost, notice);
  fabric_->giveUp(notice.lost,
                  Status(Code::kPeerLost, fmt::format("rank {} reports: {}", notice.witness, notice.why)));
}

void Watchman::onPeerLost(Rank from, const Status& why) {
  forget(from);
  if (fabric_ != nullptr) {
    const auto known = heardOf_.find(from);
    spread(known != heardOf_.end() ? known->second : LossNotice{from, fabric_->rank(), reasonOf(from, why)});
  }
  receiver_.onPeerLost(from, why);
}

void Watchman::spread(const LossNotice& notice) {
  for (uint32_t i = 0; i < places_.size(); ++i) {
    if (places_[i].peer && Rank{i} != notice.witness) tell(Rank{i}, notice, nullptr);
  }
}

void Watchman::onPeerLeft(Rank from) {
  forget(from);
  receiver_.onPeerLeft(from);
}

}  // namespace sluice::fabric
