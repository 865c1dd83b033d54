// Requests to a cluster of etcd servers over the JSON gateway. A request that a server does not
// answer goes to the next one, until its deadline, so it may be done twice. With a user, a request
// waits until there is a token, and goes again with a new one if the servers refuse it. Belongs to
// its loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <sluice/join/membership/etcd/http_client.h>
#include <sluice/join/membership/store_address.h>

namespace sluice::membership {

// Says how a member talks with etcd.
struct EtcdOptions {
  EtcdAddress address;
  TlsFiles files;
  std::string user = {};  // empty: requests carry no token
  std::string password = {};
  // A server holds a request for 7 s if it loses its leader meanwhile, while the others serve again
  // after one. So a request goes to the next server after this time.
  Duration attempt = std::chrono::seconds(1);
  // The pause after all servers have failed; it doubles up to the second one.
  Duration leastPause = std::chrono::milliseconds(200);
  Duration mostPause = std::chrono::seconds(5);
  Duration lease = std::chrono::seconds(10);  // whole seconds
};

// Pauses between attempts: each twice as long as the last, up to a limit, and shorter by up to a half
// at random, so that members that lost the same server do not come back in the same moment.
class Pauses final {
 public:
  Pauses(Duration least, Duration most) : least_(least), most_(most), next_(least) {}

  Duration next() {
    const Duration pause = next_;
    next_ = std::min(most_, 2 * next_);
    return std::chrono::duration_cast<Duration>(
        pause * std::uniform_real_distribution<double>(0.5, 1)(random_));
  }
  void reset() { next_ = least_; }

 private:
  Duration least_;
  Duration most_;
  Duration next_;
  std::minstd_rand random_{std::random_device{}()};
};

class EtcdClient final {
 public:
  using Got = std::function<void(const Result<nlohmann::json>&)>;

  // REQUIRES: `loop` and `http` outlive this object; options.address has a server.
  EtcdClient(net::EpollLoop& loop, HttpClient& http, const EtcdOptions& options);
  ~EtcdClient();  // ends every request with kCancelled
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // Posts `body` to "/v3/..." and answers with the JSON object of the answer, or with the Status that
  // says why there is none. `got` runs on the loop exactly once, never inside the call. An answer that
  // is too large is asked of the other servers, or ends the call with kDataLoss.
  enum class IfTooLarge { kAskOthers, kEnd };
  void call(std::string_view path, std::string body, TimePoint deadline, Got got,
            IfTooLarge ifTooLarge = IfTooLarge::kAskOthers);

  // Receives the store's revision with each answer.
  void onRevision(std::function<void(uint64_t)> seen) { onRevision_ = std::move(seen); }

  // Runs whenever there is a new token.
  void onToken(std::function<void()> got) { onToken_ = std::move(got); }
  // What requests that do not go by call() need in their header; empty without a user, and while there
  // is none.
  const std::string& token() const { return token_; }
  bool lacksToken() const { return !options_.user.empty() && token_.empty(); }
  // Asks for a token, unless that is under way; after a pause if the last login was refused.
  void logIn();
  // A server refuses this token. Does nothing if there is a newer one.
  void dropToken(const std::string& token);

  // The address of a path at server `server`, counted modulo the number of servers.
  std::string urlOf(size_t server, std::string_view path) const;
  const std::string& serverName(size_t server) const;
  size_t currentServer() const { return current_; }

  const Status& health() const { return health_; }
  void onHealth(std::function<void(const Status&)> changed) { onHealth_ = std::move(changed); }

 private:
  struct Call {
    std::string path;
    std::string body;
    Got got;
    size_t server = 0;
    size_t failures = 0;
    Pauses pauses;
    IfTooLarge ifTooLarge = IfTooLarge::kAskOthers;
    bool isLogin = false;
    bool isWaiting = false;   // for a token
    bool hasRenewed = false;  // asked for a new token once
    std::string token = {};   // that the request carries
    std::string answer = {};
    std::string fault = "the first request is under way";
    std::optional<HttpRequestId> request = {};
    std::optional<TimerId> pause = {};
    TimerId end{};
  };

  uint64_t begin(Call call, TimePoint deadline);
  void attempt(uint64_t id);
  void answered(uint64_t id, const HttpAnswer& answer);
  void refused(uint64_t id, int64_t code, std::string_view message);
  void tokenRefused(uint64_t id, std::string_view message);
  void loggedIn(const Result<nlohmann::json>& answer);
  void failed(uint64_t id, std::string_view fault);
  void endCall(uint64_t id, const Result<nlohmann::json>& result);
  void setHealth(const Status& health);
  std::string allServers() const;

  net::EpollLoop& loop_;
  HttpClient& http_;
  const EtcdOptions options_;
  size_t current_;  // the server that requests go to first
  std::map<uint64_t, Call> calls_;
  uint64_t nextCall_ = 1;
  Status health_;
  std::function<void(const Status&)> onHealth_;
  std::function<void(uint64_t)> onRevision_;
  std::string token_;
  bool isLoggingIn_ = false;
  Pauses loginPauses_;
  Duration loginPause_{0};  // before the next login
  std::optional<TimerId> loginTimer_;
  std::function<void()> onToken_;
};

}  // namespace sluice::membership
