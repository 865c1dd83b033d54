#include <sluice/session/flight_log.h>

#include <algorithm>
#include <utility>

#include <sluice/base/clock.h>
#include <sluice/base/text.h>

namespace sluice::session {

using flight::EventKind;

FlightLog::FlightLog(flight::FlightRecorder& recorder, const Loop& loop, const plan::Plan& plan,
                     const std::string& session)
    : recorder_(recorder), ring_(recorder.ring()), loop_(loop), session_(recorder.newSession()) {
  const auto& tensors = plan.model().tensors;
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    names_.push_back(ring_.nameOf(base::printable(tensors[t].name)));
    firstSlices_.push_back(plan.slicesOf(TensorId{t}).front().id);
  }
  constexpr uint64_t kMost = 0xffff'ffff;
  for (const plan::Slice& slice : plan.slices())
    bytes_.push_back(static_cast<uint32_t>(std::min(plan.bytesOf(slice), kMost)));
  epochs_.push_back(std::make_unique<const Members>());
  members_ = epochs_.back().get();
  add(EventKind::kSessionBegins, {.name = ring_.nameOf(base::printable(session))});
}

void FlightLog::add(EventKind kind, flight::Event event) const {
  event.kind = kind;
  event.session = session_;
  if (event.at == TimePoint()) event.at = base::RealClock().now();
  ring_.add(event);
}

void FlightLog::addText(EventKind kind, flight::Event event, std::string_view text) const {
  event.bytes = ring_.addText(base::printable(text));
  add(kind, event);
}

uint32_t FlightLog::memberAt(Rank rank) const {
  const auto& first = members_.load(std::memory_order_acquire)->first;
  return index(rank) < first.size() ? first[index(rank)] : index(rank);
}

void FlightLog::noteStep(Step step, TimePoint at) {
  uint64_t begun = steps_.load(std::memory_order_relaxed);
  while (index(step) >= begun) {
    if (!steps_.compare_exchange_weak(begun, index(step) + 1, std::memory_order_relaxed)) continue;
    return add(EventKind::kStepBegins, {.at = at, .step = index(step)});
  }
}

void FlightLog::onStage(const StageEvent& event) {
  const auto addSlice = [&](EventKind kind) {
    add(kind, {.at = event.at,
               .step = index(event.step),
               .name = names_[index(event.tensor)],
               .slice = index(event.slice),
               .peer = memberAt(event.peer),
               .bytes = bytes_[index(event.slice)]});
  };
  switch (event.stage) {
    case Stage::kReady:
      if (event.slice != firstSlices_[index(event.tensor)]) return;  // all come together
      noteStep(event.step, event.at);
      return add(EventKind::kHandedOver,
                 {.at = event.at, .step = index(event.step), .name = names_[index(event.tensor)]});
    case Stage::kPush:
    case Stage::kPublish: return addSlice(EventKind::kSent);
    case Stage::kCollect: return addSlice(EventKind::kReceived);
    case Stage::kApplied: return addSlice(EventKind::kResult);
    // A part of the way inside this rank, which a trace shows.
    case Stage::kStageOut:
    case Stage::kQueued:
    case Stage::kReduce:
    case Stage::kUpdate:
    case Stage::kStageIn: return;
  }
}

void FlightLog::onWaitBegins(const WaitEvent& event) {
  add(EventKind::kWaitBegins,
      {.at = event.from, .step = index(event.step), .name = names_[index(event.tensor)]});
}

void FlightLog::onWait(const WaitEvent& event) {
  add(EventKind::kWaitEnds,
      {.at = event.to, .step = index(event.step), .name = names_[index(event.tensor)]});
}

void FlightLog::onWaitFails(const WaitEvent& event, const Status& why) {
  addText(EventKind::kWaitFails,
          {.at = event.to, .step = index(event.step), .name = names_[index(event.tensor)]},
          why.message());
  // Ctrl-C ends a wait, and training may go on.
  if (why.code() != Code::kCancelled) recorder_.failed(why.message(), session_);
}

void FlightLog::heard(Rank from, Step step) {
  const uint32_t member = memberAt(from);
  if (member >= stepsOf_.size()) stepsOf_.resize(member + 1);
  uint64_t& known = stepsOf_[member];
  if (index(step) < known) return;
  const bool isFirst = std::exchange(known, index(step) + 1) == 0;
  const TimePoint now = loop_.now();
  if (isFirst) add(EventKind::kHeard, {.at = now, .peer = member});
  add(EventKind::kPeerInStep, {.at = now, .step = index(step), .peer = member});
}

void FlightLog::peerLost(Rank peer, const Status& why) {
  noteClocks();
  addText(EventKind::kPeerLost, {.peer = memberAt(peer)}, why.message());
  recorder_.failedSoon(why.message(), session_);
}

void FlightLog::peerLeft(Rank peer) {
  add(EventKind::kPeerLeft, {.peer = memberAt(peer)});
}

void FlightLog::peerEnds(const Status& why) {
  addText(EventKind::kPeerEnds, {}, why.message());
}

void FlightLog::failed(const Status& why) {
  if (loop_.inLoop()) return recorder_.failedSoon(why.message(), session_);
  recorder_.failed(why.message(), session_);
}

void FlightLog::stalled(TensorId tensor, Step step, std::string_view lacks) {
  addText(EventKind::kStalled, {.step = index(step), .name = names_[index(tensor)]}, lacks);
}

void FlightLog::broadcastBegins(Rank root, size_t bytes) {
  add(EventKind::kBroadcastBegins,
      {.peer = memberAt(root),
       .bytes = static_cast<uint32_t>(std::min<size_t>(bytes, 0xffff'ffff))});
}

void FlightLog::broadcastEnds(Rank root, const Status& status) {
  if (status.isOk()) return add(EventKind::kBroadcastEnds, {.peer = memberAt(root)});
  addText(EventKind::kBroadcastFails, {.peer = memberAt(root)}, status.message());
  if (status.code() != Code::kCancelled) recorder_.failed(status.message(), session_);
}

void FlightLog::enter(Epoch epoch, std::span<const Rank> members) {
  auto next = std::make_unique<Members>();
  for (const Rank member : members) next->first.push_back(index(member));
  epochs_.push_back(std::move(next));  // those before stay: another thread may look at them
  members_.store(epochs_.back().get(), std::memory_order_release);
  add(EventKind::kEpochBegins, {.step = index(epoch)});
  for (const Rank member : members)
    add(EventKind::kMember, {.step = index(epoch), .peer = index(member)});
}

void FlightLog::noteClocks() const {
  constexpr int64_t kNsInUs = 1000;
  const fabric::PeerAwareFabric* const fabric = fabric_;
  if (fabric == nullptr) return;
  for (uint32_t r = 0; r < fabric->worldSize(); ++r) {
    const auto clock = fabric->clockOffset(Rank{r});
    if (!clock) continue;
    add(EventKind::kClock,
        {.step = static_cast<uint64_t>(clock->offset.count()),
         .peer = memberAt(Rank{r}),
         .bytes = static_cast<uint32_t>(clock->roundTrip.count() / 2 / kNsInUs + 1)});
  }
}

void FlightLog::end(const Status& why) {
  if (hasEnded_.exchange(true)) return;
  add(EventKind::kSessionEnds, {.detail = why.isOk() ? uint8_t{1} : uint8_t{0}});
  if (!why.isOk()) failed(why);
}

}  // namespace sluice::session
