// The store of membership in etcd (key_values.h), by its JSON gateway.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <sluice/join/membership/etcd/etcd_client.h>
#include <sluice/join/membership/etcd/etcd_watch.h>
#include <sluice/join/membership/key_values.h>

namespace sluice::membership {

class EtcdKeyValues final : public KeyValues {
 public:
  // REQUIRES: `loop` outlives this object; options.address has a server; loadCurl() has returned ok.
  EtcdKeyValues(net::EpollLoop& loop, const EtcdOptions& options);
  ~EtcdKeyValues() override;
  EtcdKeyValues(const EtcdKeyValues&) = delete;
  EtcdKeyValues& operator=(const EtcdKeyValues&) = delete;

  void append(const Append& append, TimePoint deadline, Got<Appended> got) override;
  void list(const KeyRange& range, size_t most, TimePoint deadline, Got<Listing> got) override;
  void removeUnchanged(const Entry& entry, TimePoint deadline,
                       std::function<void(Status)> done) override;
  void keep(const std::string& key, const std::string& value,
            std::function<void(bool isThere)> onKept) override;
  void release(TimePoint deadline, std::function<void(Status)> done) override;
  void watch(const KeyRange& range, std::function<void(const Entry&)> onPut) override;
  void rewatch() override;
  const Status& health() const override { return client_.health(); }
  void onHealth(std::function<void(const Status&)> changed) override;

 private:
  // A key that is kept under a lease. The lease is granted, the key is put under it, and then the
  // lease is renewed and the key looked after in turn; whatever is gone is made anew.
  struct Kept {
    std::string key;
    std::string value;
    std::function<void(bool)> onKept;
    std::optional<int64_t> lease = {};
    bool isThere = false;
    Pauses pauses;
  };
  using Step = void (EtcdKeyValues::*)();

  void grant();
  void put();
  void renew();
  void look();
  // Makes a request for the kept key. `then` runs with the answer, unless the key was released;
  // without an answer grant() comes after a pause.
  void callForKept(std::string_view path, std::string body,
                   std::function<void(const nlohmann::json&)> then);
  void stepIn(Duration delay, Step step);
  void setThere(bool isThere);
  void lostLease();
  void fillGap();

  net::EpollLoop& loop_;
  const EtcdOptions options_;
  std::function<void(const Entry&)> onPut_;
  KeyRange watched_;
  std::optional<Kept> kept_;
  uint64_t keeping_ = 0;  // counts up when the kept key changes
  std::optional<TimerId> keepTimer_;
  // Destroyed from the last to the first: the client ends its calls by callbacks that may look at
  // the members above.
  HttpClient http_;
  EtcdClient client_;
  std::unique_ptr<EtcdWatch> watch_;
};

}  // namespace sluice::membership
