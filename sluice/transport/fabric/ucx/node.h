// One rank of the UCX fabric: a UCX worker driven by an EpollLoop. Used by ucx_fabric.cc only.
//
// UCX calls back only from inside ucp_worker_progress() or the call that starts an operation. News
// for the user then waits in `news_` until UCX has returned, so that no foreign code runs inside
// UCX; the one exception is Receiver::onMessage(), whose answer an eager payload needs at once.
//
// The parts: node.cc entry points, drive.cc progress and wake-ups, outgoing.cc, incoming.cc,
// ending.cc.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/transport/fabric/close_watch.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/node_fabric.h>
#include <sluice/transport/fabric/ucx/handles.h>
#include <sluice/transport/fabric/ucx/peer.h>
#include <sluice/transport/fabric/ucx/ucx_fabric.h>

namespace sluice::fabric::ucx {

class Node final : public FabricNode, public std::enable_shared_from_this<Node> {
 public:
  Node(UcxOptions options, net::EpollLoop& loop, std::shared_ptr<Worker> worker, int eventFd);

  void start(Receiver& receiver, FindUcxAddress findAddress);  // loop thread only

  net::EpollLoop& loop() const override { return loop_; }
  Rank rank() const override { return options_.rank; }
  size_t worldSize() const override { return options_.worldSize; }
  Counters counters() const override;
  bool hasEnded() const override { return hasEnded_; }
  void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) override;
  void close(Done done) override;
  void abort() override;
  void resume(Rank from, Lane lane) override;
  void giveUp(Rank rank, const Status& why) override;
  std::optional<TimePoint> lastHeard(Rank rank) const override;

 private:
  enum class State { kOpen, kClosing, kEnded };

  Peer& peer(Rank rank);  // made on first use
  Peer* findPeer(Rank rank) const { return peers_[index(rank)].get(); }
  Endpoint* endpoint(Peer& peer,
                     Lane lane);  // made on first use; null if it cannot be: then the peer is lost
  bool isSelf(const Peer& peer) const { return peer.rank == options_.rank; }

  // drive.cc
  void driveSoon();
  void drive();
  bool progress();
  void handleLeftovers();
  void runNews();

  // outgoing.cc
  void startSends(Peer& peer, Lane lane);
  void startSend(Peer& peer, Lane lane, unsigned id, Queued message);
  void sendEnded(Flying& flying, ucs_status_t status);
  void tellTaken(Peer& peer, Lane lane);
  void tellAllTaken();
  void tellGivenUp(Peer& peer);
  static void onSendEnded(void* request, ucs_status_t status, void* flying);

  // incoming.cc
  template <Lane kLane>
  static ucs_status_t onData(void* node, const void* header, size_t headerBytes, void* data,
                             size_t bytes, const ucp_am_recv_param_t* param);
  template <Lane kLane>
  static ucs_status_t onTaken(void* node, const void* header, size_t headerBytes, void* data,
                              size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t onGivenUp(void* node, const void* header, size_t headerBytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param);
  void listen();
  std::optional<wire::Header> open(Lane lane, std::span<const std::byte> envelope);
  ucs_status_t arrived(const wire::Header& header, uint32_t checksum, void* data, size_t bytes,
                       uint64_t attributes);
  bool offer(Peer& peer, Arrived& message);  // false: later
  void land(Peer& peer, Arrived& message, Landing landing);
  void fetch(Peer& peer, const Arrived& message, Landing landing);
  void fetchEnded(Fetching& fetching, ucs_status_t status);
  void offerWaiting(Peer& peer, Lane lane);
  void endDamaged(Peer& peer, const wire::Header& header, Done done);
  void release(Arrived& message);
  void taken(Peer& peer, const wire::Header& header);
  void takenByPeer(Peer& peer, const wire::Header& header);
  void drop(wire::Drop why);
  void breaks(Rank rank, ucs_status_t status);
  static void onFetched(void* request, ucs_status_t status, size_t bytes, void* fetching);

  // ending.cc
  void peerLost(Peer& peer, const Status& why);
  void peerLeft(Peer& peer);
  void cutOff(Peer& peer);
  void tellIfGone(Peer& peer);
  void sayGoodbyes();
  void endIfFlushed();
  void end(const Status& result);
  void settleConnections();
  void letGoOfUcx();
  template <typename IsDone>
  void progressUntil(IsDone isDone, std::chrono::milliseconds quiet);

  const UcxOptions options_;
  const secret::Key headerKey_;
  net::EpollLoop& loop_;
  std::shared_ptr<Worker> worker_;
  const int eventFd_;
  Receiver* receiver_ = nullptr;
  FindUcxAddress findAddress_;

  // Any thread.
  std::atomic<bool> hasEnded_{false};
  base::Guarded<Counters> counters_;

  State state_ = State::kOpen;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::deque<Task> news_;  // for the user, in order
  // Work that UCX's callbacks leave to be done once UCX has returned.
  std::vector<std::pair<Rank, Status>> broken_;
  std::vector<std::pair<Rank, Lane>> contacts_;  // heard from on a lane that has no endpoint yet
  std::vector<std::pair<Rank, Lane>> tellDue_;   // the sender must hear what we have taken
  std::vector<Rank> farewells_;                  // ranks that said goodbye
  std::optional<TimePoint> lastConnected_;
  bool toldOfStrangers_ = false;
  bool isInsideUcx_ = false;
  bool isDriveDue_ = false;
  bool hasLostWakeUps_ = false;  // UCX could not be armed once
  std::vector<Done> closers_;
  CloseWatch closeWatch_{loop_, options_.closeDeadline};
  TimePoint lastTaken_{};  // when some rank last took something of ours
};

}  // namespace sluice::fabric::ucx
