// Rank 0's side of the rendezvous: one listening port, every other rank a connection, and the table behind
// them. Loop thread only.
//
// Strangers: whoever connects has `handshakeDeadline` to prove that it holds the job key and to join; until
// then it is *unproven*. Unproven connections are kept oldest first and capped: above the cap the oldest is
// dropped, so that a crowd of silent strangers pushes out its own, not the rank that has just come (which
// needs two round trips, and tries again if it was unlucky).
//
// Leftovers: a process of an earlier launch may still look for a rank 0 at this port, with the same key and
// settings. It is refused if its launcher names another launch, or if it has been a member of another job. If
// it has neither, only time tells: a process that was started, and began to look for rank 0, more than a
// second before rank 0 did waits for `refusalGrace`. If a process that was started later claims the same rank
// meanwhile, the earlier one is refused as a leftover. If not, it becomes a member.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include <sluice/base/address.h>
#include <sluice/base/epoll_loop.h>
#include <sluice/plan/ids.h>
#include <sluice/rendezvous/agreement.h>
#include <sluice/rendezvous/connection.h>
#include <sluice/rendezvous/message.h>
#include <sluice/rendezvous/newcomer.h>
#include <sluice/rendezvous/table.h>
#include <sluice/secret/job_key.h>

namespace sluice::rendezvous {

struct ServerOptions {
  Address listen;  // port 0: any that is free
  secret::JobKey key = secret::JobKey::none();
  uint32_t worldSize = 1;
  Agreement agreement;
  Duration handshakeDeadline = std::chrono::seconds(5);
  // How long the others wait for a rank that was refused for its settings: a process left over from another
  // job must not end this one while the right one is still on its way. A rank that may be left over waits
  // as long.
  Duration refusalGrace = std::chrono::seconds(3);
  size_t unprovenCap = 8192;  // less if the process may not open that many files
  std::chrono::milliseconds processAge = rendezvous::processAge();
  TimePoint begun{};  // when rank 0 began to meet the others; by default when the server starts
};

// How the connections that never became a rank ended.
struct Strangers {
  uint64_t silent = 0;      // said nothing, or too little, until the deadline
  uint64_t garbage = 0;     // sent what is no handshake
  uint64_t wrongKey = 0;    // sent a wrong proof
  uint64_t left = 0;        // went before their proof, as a rank with another job key does
  uint64_t crowdedOut = 0;  // dropped to keep under the cap
  uint64_t refused = 0;     // hold the key, but are a second of their rank or differ in their settings
  uint64_t total() const { return silent + garbage + wrongKey + left + crowdedOut + refused; }
};

class Server final {
 public:
  static Result<std::unique_ptr<Server>> start(base::EpollLoop& loop, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return port_; }
  Table& table() { return table_; }
  const secret::JobNonce& jobNonce() const { return nonce_; }
  const Strangers& strangers() const { return strangers_; }
  size_t memberCount() const { return members_.size(); }  // without rank 0

  // Runs `done` once no other rank is connected any more, or after `timeout`: whoever wants to end rank 0
  // waits for this, so that the last answers reach the others.
  void whenAllLeft(Duration timeout, std::function<void()> done);

 private:
  struct Peer {
    std::shared_ptr<Connection> connection;
    TimePoint since;
    std::list<std::shared_ptr<Peer>>::iterator place;  // in unproven_, until it has joined
    bool joined = false;
    Rank rank{};  // as claimed; believed once the peer is proved
    Newcomer newcomer;
    // By how much its process was started, and began to look for rank 0, before rank 0 did.
    Duration earlier{};
  };
  using PeerPtr = std::shared_ptr<Peer>;

  Server(base::EpollLoop& loop, ServerOptions options, base::Fd listener);

  void listen();
  void acceptSome();
  void addPeer(base::Fd socket);
  void onReceived(const PeerPtr& peer, const std::string& bytes);
  void onRequest(const PeerPtr& peer, Message request);
  void onClosed(const PeerPtr& peer, const Status& why);
  void meet(const PeerPtr& peer, const std::string& newcomer);
  void compare(const PeerPtr& peer, const std::string& agreement);
  void join(const PeerPtr& peer);
  void hold(const PeerPtr& peer);
  void admit(const PeerPtr& peer);
  void refuseLeftover(const PeerPtr& peer);
  std::string describe(const PeerPtr& peer) const;
  void refuse(const PeerPtr& peer, const std::string& why);
  void refuseSettings(const PeerPtr& peer, const std::string& why);
  void giveUpRefused();
  void drop(const PeerPtr& peer);
  void tick();
  void keepTicking();
  void tellProgress();

  base::EpollLoop& loop_;
  const ServerOptions options_;
  const std::string agreementHash_;
  const base::Fd listener_;
  const uint16_t port_;
  size_t unprovenCap_;
  const secret::JobNonce nonce_ = secret::randomNonce();
  const TimePoint created_;
  const TimePoint begun_;
  Table table_;
  std::list<PeerPtr> unproven_;  // oldest first
  std::map<Rank, PeerPtr> members_;
  std::map<Rank, PeerPtr> held_;  // may be left over: they wait for a later process of their rank
  struct Refusal {
    std::string why;
    TimePoint since;
  };
  std::map<Rank, Refusal> refused_;  // for their settings; whoever of them does not come in time ends the job
  Strangers strangers_;
  uint64_t strangersTold_ = 0;
  TimePoint toldAt_;
  std::optional<TimerId> ticker_;
  std::optional<TimerId> acceptTimer_;  // while no file is left for another connection
  std::function<void()> allLeft_;
  std::optional<TimerId> allLeftTimer_;
};

// Lets this process open as many files as the system allows it; returns how many that is.
uint64_t raiseFileLimit();

}  // namespace sluice::rendezvous
