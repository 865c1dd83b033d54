// The Store of every rank but 0: asks rank 0 over one connection. It tries until rank 0 answers or
// its time is up, and says meanwhile why it still tries. Loop thread only.
//
// A connection that breaks is made again, and the requests that were not answered are sent again;
// rank 0 counts each once (table.h). Rank 0 is given up when nobody listens at its address any
// more, or after `timeout`.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sluice/base/ids.h>
#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/join/rendezvous/agreement.h>
#include <sluice/join/rendezvous/connection.h>
#include <sluice/join/rendezvous/message.h>
#include <sluice/join/rendezvous/newcomer.h>
#include <sluice/join/rendezvous/same_user.h>
#include <sluice/join/rendezvous/store.h>
#include <sluice/secret/job_key.h>

namespace sluice::rendezvous {

struct RemoteOptions {
  std::vector<Address> master;  // tried in turn
  secret::JobKey key = secret::JobKey::none();
  // Rank 0's address, if the job has no key and rank 0 hands one to ranks of the same user
  // (same_user.h).
  std::optional<Address> keyFrom{};
  Rank rank{};
  Agreement agreement;
  Duration timeout = std::chrono::seconds(60);
  std::chrono::milliseconds processAge = rendezvous::processAge();
  TimePoint
      begun{};  // when this process began to look for rank 0; by default when join() is called
};

class RemoteStore final : public Store {
 public:
  RemoteStore(net::EpollLoop& loop, RemoteOptions options);
  ~RemoteStore() override;
  RemoteStore(const RemoteStore&) = delete;
  RemoteStore& operator=(const RemoteStore&) = delete;

  // Connects, proves and joins. Call it once, before any other call. The error says what to do
  // about it.
  void join(Done joined);

  // Identifies the job; the same on every rank of it. REQUIRES: join() has completed well.
  const secret::JobNonce& jobNonce() const { return job_; }
  const secret::JobKey& key() const { return key_; }

  void set(std::string key, std::string value, Done done) override;
  void get(std::string key, Got got) override;
  void wait(std::string key, Duration timeout, Got got) override;
  void gather(std::string key, std::string value, Duration timeout, GotAll got) override;

 private:
  struct Pending {
    Message message;  // to be sent again if the connection breaks
    TimePoint until;  // when the message's own timeout is over
    Got got;
    TimerId timer;
  };

  void attempt();
  void askForKey(const Address& whom);
  void connect();
  void onProved();
  void onReceived(const std::string& bytes);
  void onClosed(const Status& why);
  void tryAgain(const Status& why);
  void finishJoin(Status status);
  void onTimeUp();
  void stopTimers();
  void rejoin(const Status& why);
  bool isWelcome(std::string_view nonce) const;
  void onWelcome(const Message& welcome);
  void send(Pending& pending);
  void loseMaster();
  void request(Message message, Duration timeout, Got got);
  void complete(uint32_t id, Result<std::string> result);
  std::string masterName() const;

  net::EpollLoop& loop_;
  const RemoteOptions options_;
  secret::JobKey key_;
  std::unique_ptr<KeyRequest> keyRequest_;
  std::shared_ptr<Connection> connection_;
  const secret::JobNonce process_ = secret::randomNonce();
  secret::JobNonce job_{};  // zeros until rank 0 has said it

  Done joined_;
  bool isMember_ = false;     // rank 0 has let this process in once
  bool isConnected_ = false;  // it is a member, and the connection is there
  int refusals_ = 0;  // attempts in a row, since the connection broke, that found nobody listening
  Status broke_;      // the error that broke the connection
  TimePoint created_;
  TimePoint begun_;
  TimePoint toldAt_;
  size_t attempts_ = 0;
  Duration backOff_;
  Status lastFailure_;
  std::optional<TimerId> attemptTimer_;  // ends this attempt, or begins the next
  std::optional<TimerId> joinTimer_;

  Status lost_;  // sticks: the reason that there is no rank 0 any more
  std::map<uint32_t, Pending> pending_;
  uint32_t nextId_ = 1;
};

}  // namespace sluice::rendezvous
