// The fabric of a simulation: ranks are hosts of a simulated network, with a HostLoop each, on one
// thread and one simulated clock. It keeps the contract of fabric.h; only the blocking helpers of
// fabric/common.h and a destruction outside of the rank's loop are not for it (HostLoop::runNow).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <sluice/transport/fabric/fabric.h>
#include <tools/sim/event_queue.h>
#include <tools/sim/flow.h>
#include <tools/sim/host_costs.h>
#include <tools/sim/host_loop.h>
#include <tools/sim/network.h>

namespace sluice::sim {

class SimNode;

struct FabricOptions {
  uint32_t worldSize = 0;
  Epoch epoch{0};
  HostCosts costs{};
  // The network and the host's costs count every byte of payload this many times: the tensors were
  // made smaller by it.
  uint64_t shrink = 1;
  Duration closeDeadline = std::chrono::seconds(2);
};

// The place where the ranks of a simulation find each other. Knows all flows and passes the
// network's news on to the hosts.
class SimHub final : private StreamUser, private EventTarget {
 public:
  // REQUIRES: both outlive this. Nothing of `events` runs after this is gone.
  SimHub(EventQueue& events, Network& network, const FabricOptions& options);
  ~SimHub() override;
  SimHub(const SimHub&) = delete;
  SimHub& operator=(const SimHub&) = delete;

  // Makes the fabric of one rank, on the host of the same number. REQUIRES: `loop` and `receiver`
  // outlive it; the rank is not taken.
  std::unique_ptr<fabric::Fabric> join(Rank rank, HostLoop& loop, fabric::Receiver& receiver);

  uint64_t traceHash() const { return trace_.value(); }
  uint64_t messages() const { return messages_; }  // that were delivered

 private:
  friend class SimNode;
  enum class Happening : uint8_t { kReady, kSent, kReadable, kNews };
  enum class Presence : uint8_t { kUnseen, kHere, kLeft, kLost };
  struct News {
    Rank about;
    Rank to;
    Presence end;
    Status why;
  };

  void onWritable(StreamId stream) override;
  void onReadable(StreamId stream) override;
  void onEvent(uint64_t what) override;
  static uint64_t encode(Happening happening, uint32_t which);

  // For nodes.
  Flow& open(Rank from, Rank to, fabric::Lane lane);
  void append(Flow& flow, Flight* flight);  // it goes at flight->readyAt
  void write(Flow& flow);
  void queueReading(Flow& flow);
  void settle(Flow& flow, Flight* flight);  // gives it back if both ends are through
  void tell(Rank to, Rank about, Presence end, const Status& why);
  void ended(Rank rank, Presence end);
  void delivered(const Flow& flow, const Flight& flight);
  SimNode* find(Rank rank) { return nodes_[index(rank)]; }
  Presence presence(Rank rank) const { return presences_[index(rank)]; }

  EventQueue& events_;
  Network& network_;
  const FabricOptions options_;
  std::vector<SimNode*> nodes_;  // null: not here
  std::vector<Presence> presences_;
  std::deque<Flow> flows_;  // by StreamId
  std::deque<News> news_;
  FlightPool flights_;
  TraceHash trace_;
  uint64_t messages_ = 0;
};

}  // namespace sluice::sim
