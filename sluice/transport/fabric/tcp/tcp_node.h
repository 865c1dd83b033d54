// One rank of the tcp fabric: its connections, and the fate of a peer when one of them ends. Used
// by tcp_fabric.cc only. Loop thread only, where nothing else is said.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/secret/door/doorman.h>
#include <sluice/transport/fabric/close_watch.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/node_fabric.h>
#include <sluice/transport/fabric/self_lanes.h>
#include <sluice/transport/fabric/tcp/incoming.h>
#include <sluice/transport/fabric/tcp/outgoing.h>
#include <sluice/transport/fabric/tcp/stream_maker.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>

namespace sluice::fabric {

class TcpNode final : public FabricNode,
                      public std::enable_shared_from_this<TcpNode>,
                      public Outgoing::Owner,
                      public Incoming::Owner {
 public:
  TcpNode(net::EpollLoop& loop, TcpMembership membership, const TcpOptions& options,
          Receiver& receiver);

  void start(net::Fd listener);

  net::EpollLoop& loop() const override { return loop_; }
  Rank rank() const override { return membership_.rank; }
  size_t worldSize() const override { return membership_.addresses.size(); }
  Counters counters() const override;
  bool hasEnded() const override { return hasEnded_; }
  void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) override;
  void close(Done done) override;
  void abort() override;
  void resume(Rank from, Lane lane) override;
  void giveUp(Rank peer, const Status& why) override;
  std::optional<TimePoint> lastHeard(Rank peer) const override;
  bool sendsQuietly(Rank to, Lane lane, const Message& message,
                    const ConstBuffer& payload) const override;

 private:
  struct Peer {
    std::array<std::shared_ptr<Outgoing>, wire::kLanes> out;
    std::array<std::shared_ptr<Incoming>, wire::kLanes> in;
    Status gone;                // the reason why nothing can be sent to it any more
    bool heardGoodbye = false;  // it has left, or is about to
    bool toldLeft = false;
    bool saidGoodbye = false;  // we have said it
    std::optional<TimePoint> lastHeard;
    std::optional<TimerId> holdTimer;
  };
  enum class State { kOpen, kClosing, kEnded };

  void outgoingHeard(Rank peer) override;
  void outgoingDrained(Rank peer, Lane lane) override;
  void outgoingLost(Rank peer, const Status& why) override;
  void outgoingGoodbye(Rank peer) override;
  void outgoingEnded(Rank peer, Lane lane) override;
  void incomingHeard(Rank peer) override;
  void incomingGoodbye(Rank peer, Lane lane) override;
  void incomingEnded(Rank peer, Lane lane) override;
  void incomingLost(Rank peer, const Status& why) override;

  Peer& peer(Rank rank) { return peers_[index(rank)]; }
  const Peer& peer(Rank rank) const { return peers_[index(rank)]; }
  void letIn(std::unique_ptr<Stream> stream);
  void orderLanes(Rank rank);
  void lose(Rank rank, const Status& why);
  void markLeft(Rank rank);
  void tellIfLeft(Rank rank);
  void endConnections(Peer& peer, const Status& why, bool atOnce);
  TimePoint lastTaken() const;
  void sayGoodbyeIfFlushed(Peer& peer);
  void endIfClosed();
  void end(const Status& result);

  net::EpollLoop& loop_;
  const TcpMembership membership_;
  const TcpOptions options_;
  Receiver& receiver_;
  std::atomic<bool> hasEnded_{false};
  base::Guarded<Counters> counters_;

  const StreamMaker maker_;
  State state_ = State::kOpen;
  std::vector<Peer> peers_;
  SelfLanes self_;
  uint64_t selfSequence_ = 0;
  std::unique_ptr<door::Doorman> doorman_;  // its handlers use what is above
  std::vector<Done> closers_;
  CloseWatch closeWatch_{loop_, options_.closeDeadline};
};

}  // namespace sluice::fabric
