#include <sluice/session/elastic/epoch_fabric.h>

#include <utility>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::session {
namespace {

Status betweenEpochs() {
  return {Code::kUnavailable,
          "members change, and the connections of the next epoch are not there"};
}

void add(fabric::Counters& sum, const fabric::Counters& more) {
  sum.messagesSent += more.messagesSent;
  sum.bytesSent += more.bytesSent;
  sum.messagesReceived += more.messagesReceived;
  sum.bytesReceived += more.bytesReceived;
  sum.connections += more.connections;
  sum.strangers += more.strangers;
  for (size_t reason = 0; reason < more.drops.byReason.size(); ++reason)
    sum.drops.byReason[reason] += more.drops.byReason[reason];
}

}  // namespace

EpochFabric::EpochFabric(std::unique_ptr<fabric::WatchedFabric> first)
    : loop_(first->loop()),
      rank_(first->rank()),
      worldSize_(first->worldSize()),
      owned_(std::move(first)),
      present_(owned_.with([](const Owned& fabric) { return fabric.get(); })) {}

EpochFabric::~EpochFabric() {
  fabric::runBeforeFreeing(loop_, [] { /* after all that was posted */ });
}

void EpochFabric::drop() {
  SLUICE_DCHECK(loop_.inLoop());
  present_ = nullptr;
  Owned last = owned_.with([](Owned& fabric) { return std::exchange(fabric, nullptr); });
  // The session counts over all epochs, so the numbers of this fabric stay.
  if (last != nullptr) past_.with([&](fabric::Counters& sum) { add(sum, last->counters()); });
}

void EpochFabric::replace(std::unique_ptr<fabric::WatchedFabric> next) {
  SLUICE_DCHECK(loop_.inLoop() && present_ == nullptr);
  rank_ = next->rank();
  worldSize_ = next->worldSize();
  present_ = next.get();
  owned_.with([&](Owned& fabric) { fabric = std::move(next); });
}

std::optional<fabric::ClockOffset> EpochFabric::clockOffset(Rank peer) const {
  return present_ != nullptr ? present_->clockOffset(peer) : std::nullopt;
}

std::optional<Duration> EpochFabric::busyFor(Rank peer) const {
  return present_ != nullptr ? present_->busyFor(peer) : std::nullopt;
}

std::optional<TimePoint> EpochFabric::lastHeard(Rank peer) const {
  return present_ != nullptr ? present_->lastHeard(peer) : std::nullopt;
}

template <typename F>
void EpochFabric::onLoop(F&& task) {
  if (loop_.inLoop()) return task();
  loop_.post(std::forward<F>(task));
}

void EpochFabric::send(Rank to, fabric::Lane lane, const fabric::Message& message,
                       fabric::ConstBuffer payload, fabric::Done done) {
  onLoop([this, to, lane, message, payload, done = std::move(done)]() mutable {
    if (present_ != nullptr) return present_->send(to, lane, message, payload, std::move(done));
    // Between two epochs nobody is there. The sender hears of it later, and never inside its
    // call.
    loop_.post([done = std::move(done)] { done(betweenEpochs()); });
  });
}

void EpochFabric::close(fabric::Done done) {
  onLoop([this, done = std::move(done)]() mutable {
    if (present_ != nullptr) return present_->close(std::move(done));
    loop_.post([done = std::move(done)] { done(base::ok()); });
  });
}

void EpochFabric::resume(Rank from, fabric::Lane lane) {
  onLoop([this, from, lane] {
    if (present_ != nullptr) present_->resume(from, lane);
  });
}

void EpochFabric::giveUp(Rank peer, Status why) {
  onLoop([this, peer, why = std::move(why)] {
    if (present_ != nullptr) present_->giveUp(peer, why);
  });
}

fabric::Counters EpochFabric::counters() const {
  auto sum = past_.with([](const fabric::Counters& past) { return past; });
  owned_.with([&](const Owned& fabric) {
    if (fabric != nullptr) add(sum, fabric->counters());
  });
  return sum;
}

}  // namespace sluice::session
