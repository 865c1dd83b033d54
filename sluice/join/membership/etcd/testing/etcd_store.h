// etcd as a store for the contract suite. All cases share three servers.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/net/epoll_loop.h>
#include <sluice/join/membership/etcd/base64.h>
#include <sluice/join/membership/etcd/curl_library.h>
#include <sluice/join/membership/etcd/etcd_json.h>
#include <sluice/join/membership/etcd/etcd_key_values.h>
#include <sluice/join/membership/etcd/testing/etcd_servers.h>
#include <sluice/join/membership/testing/store_under_test.h>

namespace sluice::membership {

// The servers of all tests; null if etcd is not installed.
inline EtcdServers* sharedServers() {
  static const std::unique_ptr<EtcdServers> kServers = EtcdServers::start(3);
  return kServers.get();
}

class EtcdStore final : public contract::StoreUnderTest {
 public:
  explicit EtcdStore(EtcdServers& servers) : servers_(servers) {
    EXPECT_TRUE(loadCurl().isOk()) << loadCurl().toString();
    options_.address = servers.address();
    options_.files = servers.files();
    options_.lease = std::chrono::seconds(2);
  }
  ~EtcdStore() override { setAvailable(true); }
  EtcdStore(const EtcdStore&) = delete;
  EtcdStore& operator=(const EtcdStore&) = delete;

  EtcdServers& servers() { return servers_; }
  EtcdOptions& options() { return options_; }

  void onLoop(const Task& task) override {
    std::promise<void> ended;
    thread_.loop().post([&] {
      task();
      ended.set_value();
    });
    ended.get_future().wait();
  }
  bool runUntil(const std::function<bool()>& holds, Duration patience) override {
    const TimePoint end = now() + patience;
    while (true) {
      bool isTrue = false;
      onLoop([&] { isTrue = holds(); });
      if (isTrue) return true;
      if (now() >= end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  TimePoint now() override { return base::RealClock().now(); }
  std::unique_ptr<Membership> make(const StoreOptions& options) override {
    return std::make_unique<StoreMembership>(
        thread_.loop(), std::make_unique<EtcdKeyValues>(thread_.loop(), options_), options);
  }

  void put(const std::string& key, const std::string& value) override {
    servers_.postAnywhere("/v3/kv/put", fmt::format(R"({{"key":"{}","value":"{}"}})", toBase64(key),
                                                    toBase64(value)));
  }
  void remove(const std::string& key) override {
    servers_.postAnywhere("/v3/kv/deleterange", fmt::format(R"({{"key":"{}"}})", toBase64(key)));
  }
  std::optional<std::string> get(const std::string& key) override {
    const auto answer = parseAnswer(
        servers_.postAnywhere("/v3/kv/range", fmt::format(R"({{"key":"{}"}})", toBase64(key))));
    const auto listing =
        answer.isOk() ? readListing(*answer, kEntriesShown) : Result<Listing>(answer.status());
    if (!listing.isOk() || listing->entries.empty()) return std::nullopt;
    return listing->entries.front().value;
  }
  void endLeases() override {
    const auto answer = parseAnswer(servers_.postAnywhere("/v3/lease/leases", "{}"));
    for (const auto& lease : answer.isOk() ? answer->value("leases", nlohmann::json::array())
                                           : nlohmann::json::array()) {
      servers_.postAnywhere("/v3/lease/revoke",
                            leaseRequest(std::stoll(lease.at("ID").get<std::string>())));
    }
  }
  void setAvailable(bool isAvailable) override {
    if (isAvailable == isAvailable_) return;
    isAvailable_ = isAvailable;
    for (size_t i = 0; i < servers_.count(); ++i) {
      if (isAvailable) {
        servers_.restart(i);
      } else {
        servers_.kill(i);
      }
    }
  }

 private:
  EtcdServers& servers_;
  EtcdOptions options_;
  bool isAvailable_ = true;
  net::LoopThread thread_{"etcd test"};
};

}  // namespace sluice::membership
