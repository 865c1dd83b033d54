// One rank of the loopback fabric. Belongs to its rank's loop; nodes talk to each other by posting
// to the other's loop. Used by loopback_fabric.cc only.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/base/mutex.h>
#include <sluice/transport/fabric/close_watch.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/node_fabric.h>

namespace sluice::fabric {

// A message on its way. The payload is the sender's memory, so both sides reach it under one lock:
// the receiver copies while it holds it, and the sender, when it cannot wait, takes it back.
struct Envelope {
  wire::Header header;
  Done done;  // the sender's loop only
  base::Guarded<std::optional<ConstBuffer>> payload;
};

class Node;
using FindNode = std::function<std::shared_ptr<Node>(Rank)>;  // null for a rank that is not there

class Node final : public FabricNode, public std::enable_shared_from_this<Node> {
 public:
  Node(Rank rank, size_t worldSize, Epoch epoch, Loop& loop, Receiver& receiver,
       Duration closeDeadline, FindNode findNode);

  Loop& loop() const override { return loop_; }
  Rank rank() const override { return rank_; }
  size_t worldSize() const override { return peers_.size(); }
  Counters counters() const override;
  bool hasEnded() const override { return hasEnded_; }
  void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) override;
  void close(Done done) override;
  void abort() override;
  void resume(Rank from, Lane lane) override;
  void giveUp(Rank peer, const Status& why) override;
  std::optional<TimePoint> lastHeard(Rank peer) const override;

 private:
  using EnvelopePtr = std::shared_ptr<Envelope>;
  struct Stream {
    uint64_t nextSequence = 0;      // of what we send
    std::deque<EnvelopePtr> inbox;  // messages that came and have not landed
    bool isWaiting = false;         // the receiver said later
  };
  struct Peer {
    std::array<Stream, wire::kLanes> streams;
    std::list<EnvelopePtr> unfinished;  // ours, on their way to it
    bool talked = false;                // in either direction: it must hear how we end
    Status gone;                        // the reason why nothing can be sent to it any more
    std::optional<TimePoint> lastHeard;
  };
  enum class State { kOpen, kClosing, kEnded };

  Peer& peer(Rank rank) { return peers_[index(rank)]; }
  void postTo(Rank to, std::function<void(Node&)> call);
  void arrive(const EnvelopePtr& envelope);
  void pump(Rank from, Lane lane);
  void deliver(const EnvelopePtr& envelope, Landing landing);
  void sent(const EnvelopePtr& envelope);
  void peerLost(Rank rank, const Status& why);
  void peerLeft(Rank rank);
  void failUnfinished(Peer& peer, const Status& why);
  void endIfFlushed();
  void end(const Status& result);
  void tellHowWeEnded(Rank to, bool inGoodOrder);

  const Rank rank_;
  const Epoch epoch_;
  Loop& loop_;
  Receiver& receiver_;
  const FindNode findNode_;

  std::atomic<bool> hasEnded_{false};

  State state_ = State::kOpen;
  bool saidGoodbye_ = false;
  std::vector<Peer> peers_;
  std::vector<Done> closers_;
  CloseWatch closeWatch_;
  TimePoint lastTaken_{};  // when some rank last took something of ours
  base::Guarded<Counters> counters_;
};

}  // namespace sluice::fabric
