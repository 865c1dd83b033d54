// A fabric on which no rank dies silently: any engine, with heartbeats around it. Neither TCP nor
// UCX notices that a cable was cut; this does, and says who was lost, what was heard last and how
// long ago. It keeps the same contract as the engine inside (contract_suite.h runs on both), and
// these promises on top:
//
// - A rank that this rank has sent to or heard from is *watched*: it gets a heartbeat every
//   interval, and it is lost after silenceLimit without a byte from it (Fabric::giveUp). A rank
//   that talks to few ranks watches few.
// - A rank whose pulse (pulse.h) says that its loop is busy is waited for, up to busyLimit.
// - A rank that loses a peer tells all ranks it watches, so that ranks that do not talk to the peer
//   learn of it too. They ask the peer first. If it answers, only the path between those two is
//   broken; if not, they treat it as lost.
// - Time in which this rank itself did not run counts against nobody.
//
// Heartbeats travel on the control lane, which bulk traffic cannot hold up. They go whether or not
// other messages do: that a message is queued does not say that its bytes move.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/transport/fabric/node_fabric.h>
#include <sluice/transport/fabric/watch/clock_offset.h>
#include <sluice/transport/fabric/watch/pulse.h>

namespace sluice::fabric {

struct LivenessOptions {
  Duration interval = std::chrono::milliseconds(250);
  Duration silenceLimit = std::chrono::milliseconds(1900);
  Duration busyLimit = std::chrono::minutes(2);

  Status check() const;  // a limit that one lost packet could reach is refused
};
Result<LivenessOptions> readLivenessOptions(const base::Config& config);

// A fabric that also knows its peers' clocks, and whether they are busy.
class PeerAwareFabric : public Fabric {
 public:
  // Empty until heartbeats have gone back and forth. Loop thread only.
  virtual std::optional<ClockOffset> clockOffset(Rank peer) const = 0;

  // For how long the peer's loop has not turned, if it says that it is busy. Loop thread only.
  virtual std::optional<Duration> busyFor(Rank peer) const = 0;
};

class Watchman;

class WatchedFabric final : public PeerAwareFabric {
 public:
  // Makes the engine, given its receiver.
  using MakeEngine = std::function<Result<std::unique_ptr<NodeFabric>>(Receiver&)>;

  // Without a pulse a rank that is busy for longer than silenceLimit is taken for lost.
  // REQUIRES: `loop` is the engine's; it, `receiver` and `pulse` outlive this.
  static Result<std::unique_ptr<WatchedFabric>> make(Loop& loop, const LivenessOptions& options,
                                                     Receiver& receiver,
                                                     const MakeEngine& makeEngine,
                                                     Pulse* pulse = nullptr);
  ~WatchedFabric() override;
  WatchedFabric(const WatchedFabric&) = delete;
  WatchedFabric& operator=(const WatchedFabric&) = delete;

  std::optional<ClockOffset> clockOffset(Rank peer) const override;
  std::optional<Duration> busyFor(Rank peer) const override;
  void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) override;
  void close(Done done) override;
  void resume(Rank from, Lane lane) override { engine_->resume(from, lane); }
  void giveUp(Rank peer, Status why) override { engine_->giveUp(peer, std::move(why)); }
  std::optional<TimePoint> lastHeard(Rank peer) const override { return engine_->lastHeard(peer); }
  Counters counters() const override { return engine_->counters(); }
  Rank rank() const override { return engine_->rank(); }
  size_t worldSize() const override { return engine_->worldSize(); }
  Loop& loop() const override { return engine_->loop(); }

 private:
  WatchedFabric(std::shared_ptr<Watchman> watchman, std::unique_ptr<NodeFabric> engine);

  const std::shared_ptr<Watchman> watchman_;  // outlives the engine, whose receiver it is
  std::unique_ptr<NodeFabric> engine_;
  std::vector<std::atomic<bool>> hasSentTo_;  // by rank
};

}  // namespace sluice::fabric
