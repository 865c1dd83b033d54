// A watch of a range of keys in etcd that goes on for ever: over lost connections, servers without a
// leader, compactions and restored backups. Whenever it cannot go on where it was it says so by
// `onGap`, and the owner reads the range. Belongs to its loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <sluice/join/membership/etcd/etcd_client.h>
#include <sluice/join/membership/etcd/http_client.h>
#include <sluice/join/membership/key_values.h>

namespace sluice::membership {

class EtcdWatch final {
 public:
  // REQUIRES: `loop`, `http` and `client` outlive this object.
  EtcdWatch(net::EpollLoop& loop, HttpClient& http, EtcdClient& client, const EtcdOptions& options,
            KeyRange range, std::function<void(const Entry&)> onPut, std::function<void()> onGap);
  ~EtcdWatch();
  EtcdWatch(const EtcdWatch&) = delete;
  EtcdWatch& operator=(const EtcdWatch&) = delete;

  // Begins anew at another server, from now on.
  void restart();
  // Ends a pause after a failure: the servers answer again.
  void retryNow();
  // An answer says that the store is at this revision. If two in a row are lower than the watch has
  // seen, a backup was restored, and the watch would wait for revisions that come much later. A
  // single one may only be late.
  void storeIsAt(uint64_t revision);

 private:
  void begin();
  void end();
  void endAndPause();
  void pause();
  void take(std::string_view bytes);
  void readSome();
  void takeLine(std::string_view line);

  net::EpollLoop& loop_;
  HttpClient& http_;
  EtcdClient& client_;
  const KeyRange range_;
  const std::function<void(const Entry&)> onPut_;
  const std::function<void()> onGap_;
  const Duration patience_;  // for the server to confirm the watch
  size_t server_;
  int lowerRevisions_ = 0;
  uint64_t next_ = 0;               // the revision to go on from; 0: from now on
  std::string token_;               // that the request carries
  std::string unread_;              // what has come, from the beginning of a line on
  size_t searched_ = 0;             // no line ends before this place in it
  std::optional<TimerId> reading_;  // goes on with unread_
  std::optional<HttpRequestId> request_;
  std::optional<TimerId> timer_;  // until it is confirmed, or until the next attempt
  Pauses pauses_;
};

}  // namespace sluice::membership
