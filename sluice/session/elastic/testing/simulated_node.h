// One rank of a fabric on the simulated network. Belongs to its process's loop. Used by
// simulated_network.cc only.
#pragma once

#include <array>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/session/elastic/testing/simulated_network.h>
#include <sluice/transport/fabric/close_watch.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/node_fabric.h>
#include <sluice/transport/fabric/self_lanes.h>

namespace sluice::session {

class SimulatedNode final : public fabric::FabricNode,
                            public std::enable_shared_from_this<SimulatedNode> {
 public:
  SimulatedNode(SimulatedNetwork& network, std::vector<uint32_t> ports, Rank rank, Epoch epoch,
                ProcessLoop& loop, fabric::Receiver& receiver);

  Loop& loop() const override { return loop_; }
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

  // For the network.
  uint32_t process() const;
  void tellAllOfTheEnd();                       // without a goodbye; any time
  bool breakConnection(const Status& why);      // with some peer
  void peerLost(Rank rank, const Status& why);  // on the loop

 private:
  struct Parcel {
    wire::Header header;
    std::vector<std::byte> bytes;
  };
  // A message of ours until its completion has run.
  struct Unfinished {
    wire::Header header;
    fabric::ConstBuffer payload;
    fabric::Done done;  // null: it has run
    bool isWritten = false;
  };
  struct Incoming {
    std::deque<std::shared_ptr<Parcel>> inbox;
    bool isWaiting = false;               // the receiver said later
    std::optional<fabric::Landing> slow;  // of the first parcel, half of which has landed
  };
  struct Peer {
    std::array<Incoming, wire::kLanes> in;
    std::array<std::shared_ptr<SimulatedNetwork::Pipe>, wire::kLanes> out;
    std::array<uint64_t, wire::kLanes> sequence{};
    std::array<TimePoint, wire::kLanes> written{};
    std::list<std::shared_ptr<Unfinished>> unfinished;
    uint64_t flying = 0;  // messages of ours that its host has not taken
    bool talked = false;
    Status gone;
    std::optional<TimePoint> lastHeard;
  };
  enum class State : uint8_t { kOpen, kClosing, kEnded };

  Peer& peer(Rank rank) { return peers_[index(rank)]; }
  void write(Rank to, const std::shared_ptr<Unfinished>& message);
  void wasTaken(Rank by);
  void wasRefused(Rank by);
  void arrive(const std::shared_ptr<Parcel>& parcel);
  void pump(Rank from, fabric::Lane lane);
  void land(Rank from, fabric::Lane lane, fabric::Landing landing, const Parcel& parcel);
  void finishLanding(Rank from, fabric::Lane lane, const std::shared_ptr<Parcel>& parcel);
  void count(const Parcel& parcel);
  void peerLeft(Rank rank);
  void endIncoming(Peer& peer, const Status& why);
  void endOutgoing(Peer& peer, const Status& why);
  void endIfFlushed();
  void end(const Status& result);
  void tell(Rank peer, SimulatedNetwork::ToNode toNode);

  SimulatedNetwork& network_;
  const std::vector<uint32_t> ports_;  // by rank
  const Rank rank_;
  const Epoch epoch_;
  ProcessLoop& loop_;
  fabric::Receiver& receiver_;
  State state_ = State::kOpen;
  bool saidGoodbye_ = false;
  std::vector<Peer> peers_;
  std::vector<fabric::Done> closers_;
  fabric::CloseWatch closeWatch_;
  TimePoint lastTaken_{};  // when some rank last took something of ours
  base::Guarded<fabric::Counters> counters_;
  fabric::SelfLanes self_;
  std::array<uint64_t, wire::kLanes> selfSequences_{};
};

}  // namespace sluice::session
