#include <sluice/transport/fabric/watch/watched_fabric.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/watch/watchman.h>

namespace sluice::fabric {

Status LivenessOptions::check() const {
  if (interval > Duration::zero() && silenceLimit >= 3 * interval) return base::ok();
  return {Code::kInvalidArgument,
          fmt::format(
              "silence-limit {} must be at least three times heartbeat-interval {}, which must not "
              "be zero",
              base::formatDuration(silenceLimit), base::formatDuration(interval))};
}

Result<LivenessOptions> readLivenessOptions(const base::Config& config) {
  LivenessOptions options{.interval = config.duration(option::kHeartbeatInterval),
                          .silenceLimit = config.duration(option::kSilenceLimit),
                          .busyLimit = config.duration(option::kBusyLimit)};
  // A busy rank is silent by definition, so a busy limit below the silence limit would make a
  // busy rank look worse than a dead one.
  options.busyLimit = std::max(options.busyLimit, options.silenceLimit);
  SLUICE_RETURN_IF_ERROR(options.check());
  return options;
}

Result<std::unique_ptr<WatchedFabric>> WatchedFabric::make(Loop& loop,
                                                           const LivenessOptions& options,
                                                           Receiver& receiver,
                                                           const MakeEngine& makeEngine,
                                                           Pulse* pulse) {
  SLUICE_RETURN_IF_ERROR(options.check());
  // The engine needs a receiver when it is made, and the watchman needs the engine to send
  // with. So the watchman comes first and is told of the engine by a task on the loop, before
  // which no message can reach it.
  auto watchman = std::make_shared<Watchman>(loop, options, receiver, pulse);
  SLUICE_ASSIGN_OR_RETURN(auto engine, makeEngine(*watchman));
  SLUICE_CHECK(&engine->loop() == &loop);
  return std::unique_ptr<WatchedFabric>(new WatchedFabric(std::move(watchman), std::move(engine)));
}

WatchedFabric::WatchedFabric(std::shared_ptr<Watchman> watchman, std::unique_ptr<NodeFabric> engine)
    : watchman_(std::move(watchman)), engine_(std::move(engine)), hasSentTo_(engine_->worldSize()) {
  loop().post([watchman = watchman_, engine = engine_.get()] { watchman->begin(*engine); });
}

WatchedFabric::~WatchedFabric() {
  if (!watchman_->hasStopped())
    runBeforeFreeing(loop(), [watchman = watchman_] { watchman->stop(); });
}

std::optional<ClockOffset> WatchedFabric::clockOffset(Rank peer) const {
  return watchman_->clockOffset(peer);
}

std::optional<Duration> WatchedFabric::busyFor(Rank peer) const {
  return watchman_->busyFor(peer);
}

void WatchedFabric::send(Rank to, Lane lane, const Message& message, ConstBuffer payload,
                         Done done) {
  const bool isOther = index(to) < hasSentTo_.size() && to != rank();
  // The flag is set most of the time, so it is read before it is written: all senders share it.
  if (isOther && !hasSentTo_[index(to)].load() && !hasSentTo_[index(to)].exchange(true)) {
    loop().post([watchman = watchman_, to] { watchman->watch(to); });
  }
  // On the loop nothing stands between a message and its connection.
  if (engine_->takesAtOnce(to, lane, message, payload))
    return engine_->node().send(to, lane, message, payload, std::move(done));
  engine_->send(to, lane, message, payload, std::move(done));
}

void WatchedFabric::close(Done done) {
  // The watchman stops before the engine closes: a peer that takes long over our last messages
  // is then judged by the close's own deadline and not given up as silent in the middle of it.
  loop().post([watchman = watchman_] { watchman->stop(); });
  engine_->close(std::move(done));
}

}  // namespace sluice::fabric
