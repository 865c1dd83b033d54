// One rank of the simulated fabric. Belongs to its rank's loop. Used by sim_fabric.cc only, through
// NodeFabric.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/transport/fabric/close_watch.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/node_fabric.h>
#include <sluice/transport/fabric/self_lanes.h>
#include <tools/sim/sim_fabric.h>

namespace sluice::sim {

class SimNode final : public fabric::FabricNode, public std::enable_shared_from_this<SimNode> {
 public:
  SimNode(SimHub& hub, Rank rank, HostLoop& loop, fabric::Receiver& receiver);

  HostLoop& loop() const override { return loop_; }
  Rank rank() const override { return rank_; }
  size_t worldSize() const override { return peers_.size(); }
  fabric::Counters counters() const override;
  bool hasEnded() const override { return state_ == State::kEnded; }
  void send(Rank to, fabric::Lane lane, const fabric::Message& message, fabric::ConstBuffer payload,
            fabric::Done done) override;
  void close(fabric::Done done) override;
  void abort() override;
  void resume(Rank from, fabric::Lane lane) override;
  void giveUp(Rank peer, const Status& why) override;
  std::optional<TimePoint> lastHeard(Rank peer) const override;

  // For the hub.
  void completeSent(Flow& flow);  // the stream has taken more of the flow's flights
  void pump(Flow& flow);          // the stream may have more for this rank
  void wasDelivered(Rank to);
  void hear(Rank about, SimHub::Presence end, const Status& why);

 private:
  struct Peer {
    std::array<Flow*, wire::kLanes> out{};
    std::array<Flow*, wire::kLanes> in{};
    uint32_t undelivered = 0;  // messages of ours on their way to it
    bool talked = false;       // in either direction: it must hear how we end
    Status gone;               // the reason why nothing can be sent to it any more
    std::optional<TimePoint> lastHeard;
  };
  enum class State : uint8_t { kOpen, kClosing, kEnded };

  Peer& peer(Rank rank) { return peers_[index(rank)]; }
  bool ask(Flow& flow, Flight& flight);  // false: the receiver puts it off
  void deliver(Flow& flow, Flight& flight);
  void count(wire::Drop drop);
  void peerLost(Rank rank, const Status& why);
  void peerLeft(Rank rank);
  void endOutgoing(Peer& peer, const Status& why);
  void endIncoming(Peer& peer, const Status& why);
  void endIfFlushed();
  void end(const Status& result);

  SimHub& hub_;
  const Rank rank_;
  HostLoop& loop_;
  fabric::Receiver& receiver_;
  State state_ = State::kOpen;
  std::vector<Peer> peers_;
  std::vector<fabric::Done> closers_;
  fabric::CloseWatch closeWatch_;
  TimePoint lastTaken_{};  // when some rank last took something of ours
  base::Guarded<fabric::Counters> counters_;
  fabric::SelfLanes self_;
  std::array<uint64_t, wire::kLanes> selfSequences_{};
};

}  // namespace sluice::sim
