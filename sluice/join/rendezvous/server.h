// Rank 0's side of the rendezvous: one listening port, a connection for every other rank, and the
// table behind them. Loop thread only.
//
// Strangers never reach the loop: a doorman (door/doorman.h) goes through the handshake with each
// connection on a thread of its own. A connection that has proved the job key has
// `handshakeDeadline` to join. Once all ranks are here, the doorman takes few connections at a
// time; a rank that has lost its connection can still come back.
//
// Leftovers: a process of an earlier launch may still look for a rank 0 at this port, with the same
// key and settings. It is refused if its launcher names another launch, or if it has been a member
// of another job. If neither applies, only time tells: a process that was started, and began to
// look for rank 0, more than a second before rank 0 did waits for `refusalGrace`. If a process that
// was started later claims the same rank meanwhile, the earlier one is refused as a leftover. If
// not, it becomes a member.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include <sluice/base/ids.h>
#include <sluice/base/mutex.h>
#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/join/rendezvous/agreement.h>
#include <sluice/join/rendezvous/connection.h>
#include <sluice/join/rendezvous/message.h>
#include <sluice/join/rendezvous/newcomer.h>
#include <sluice/join/rendezvous/table.h>
#include <sluice/secret/door/doorman.h>
#include <sluice/secret/door/greeting.h>
#include <sluice/secret/job_key.h>

namespace sluice::rendezvous {

struct ServerOptions {
  Address listen;  // port 0: any that is free
  secret::JobKey key = secret::JobKey::none();
  uint32_t worldSize = 1;
  Agreement agreement;
  Duration handshakeDeadline = std::chrono::seconds(5);
  // The time that the others wait for a rank that was refused for its settings: a process left over
  // from another job must not end this one while the right one is still on its way. A rank that may
  // be left over waits as long.
  Duration refusalGrace = std::chrono::seconds(3);
  // The time that the others wait for a rank whose connection broke and that has not closed it.
  Duration returnGrace = std::chrono::seconds(3);
  size_t maxStrangers = 8192;  // less if the process may not open that many files
  door::DoorThread door{};     // holds strangers off; null: the server makes a thread for it
  std::chrono::milliseconds processAge = rendezvous::processAge();
  TimePoint begun{};  // when rank 0 began to meet the others; by default when the server starts
};

// Counts the connections that never became a rank, by how they ended.
struct Strangers {
  uint64_t silent = 0;      // said nothing, or too little, until the deadline
  uint64_t garbage = 0;     // sent what is no handshake
  uint64_t wrongKey = 0;    // sent a wrong proof
  uint64_t left = 0;        // went before their proof, as a rank with another job key does
  uint64_t crowdedOut = 0;  // dropped to keep under the cap
  uint64_t refused = 0;  // hold the key, but are a second of their rank or differ in their settings
  uint64_t total() const { return silent + garbage + wrongKey + left + crowdedOut + refused; }
};

class Server final {
 public:
  static Result<std::unique_ptr<Server>> start(net::EpollLoop& loop, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return port_; }
  ValueTable& table() { return table_; }
  const secret::JobNonce& jobNonce() const { return nonce_; }
  Strangers strangers() const {
    return strangers_.with([](const Strangers& strangers) { return strangers; });
  }
  size_t memberCount() const { return members_.size(); }  // without rank 0

  // Runs `done` once no other rank is connected any more, or after `timeout`: rank 0 waits for this
  // before it ends, so that the last answers reach the others.
  void whenAllLeft(Duration timeout, std::function<void()> done);

 private:
  struct Peer {
    std::shared_ptr<Connection> connection;
    TimePoint since;
    std::list<std::shared_ptr<Peer>>::iterator place;  // in newcomers_, until it has joined
    bool joined = false;
    Rank rank{};  // as it claimed in its handshake
    Newcomer newcomer;
    // The time by which its process was started, and began to look for rank 0, before rank 0 did.
    Duration earlier{};
  };
  using PeerPtr = std::shared_ptr<Peer>;

  Server(net::EpollLoop& loop, ServerOptions options, net::Fd listener);

  door::Doorman::Handlers doorHandlers();
  void addPeer(door::Greeting greeting);
  void countStranger(uint64_t Strangers::* how);
  void onReceived(const PeerPtr& peer, const std::string& bytes);
  void onRequest(const PeerPtr& peer, Message request);
  void onClosed(const PeerPtr& peer, const Status& why);
  void meet(const PeerPtr& peer, const std::string& newcomer);
  void compare(const PeerPtr& peer, const std::string& agreement);
  void join(const PeerPtr& peer);
  void hold(const PeerPtr& peer);
  void admit(const PeerPtr& peer);
  void awaitReturn(const PeerPtr& peer, const Status& why);
  void refuseLeftover(const PeerPtr& peer);
  std::string describe(const PeerPtr& peer) const;
  void refuse(const PeerPtr& peer, const std::string& why);
  void refuseSettings(const PeerPtr& peer, const std::string& why);
  void giveUpRefused();
  void drop(const PeerPtr& peer);
  void tick();
  void keepTicking();
  void tellProgress();

  net::EpollLoop& loop_;
  const ServerOptions options_;
  const std::string agreementHash_;
  const uint16_t port_;
  const secret::JobNonce nonce_ = secret::randomNonce();
  const TimePoint created_;
  const TimePoint begun_;
  ValueTable table_;
  std::list<PeerPtr> newcomers_;  // hold the job key, but have not joined; oldest first
  std::map<Rank, PeerPtr> members_;
  std::map<Rank, PeerPtr> away_;  // ranks whose connection broke, for returnGrace
  std::map<Rank, PeerPtr> held_;  // may be left over: they wait for a later process of their rank
  struct Refusal {
    std::string why;
    TimePoint since;
  };
  std::map<Rank, Refusal>
      refused_;  // for their settings; a rank that does not come in time ends the job
  base::Guarded<Strangers> strangers_;
  uint64_t strangersTold_ = 0;
  TimePoint toldAt_;
  std::optional<TimerId> ticker_;
  std::function<void()> allLeft_;
  std::optional<TimerId> allLeftTimer_;
  const std::shared_ptr<Server*> self_ =
      std::make_shared<Server*>(this);  // for tasks that may come too late
  std::atomic<bool> isTickAsked_{false};
  std::unique_ptr<door::Doorman> doorman_;  // its handlers use what is above
};

// Lets this process open `needed` files, if the system allows it; returns how many it may open. A
// limit that is high enough stays as it is: code with select() cannot handle descriptors from 1024
// on.
uint64_t raiseFileLimit(uint64_t needed);

}  // namespace sluice::rendezvous
