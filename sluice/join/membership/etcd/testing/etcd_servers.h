// Real etcd servers on loopback, for tests: as processes of their own that end with this one, with
// their data in memory. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sluice/join/membership/etcd/http_client.h>
#include <sluice/join/membership/store_address.h>

namespace sluice::membership {

class EtcdServers final {
 public:
  // Starts `count` servers and waits until they serve; null if etcd is not installed. With `tls`,
  // clients need a certificate. `flags` are etcd's own.
  static std::unique_ptr<EtcdServers> start(size_t count, bool hasTls = false,
                                            const std::vector<std::string>& flags = {});
  ~EtcdServers();
  EtcdServers(const EtcdServers&) = delete;
  EtcdServers& operator=(const EtcdServers&) = delete;

  size_t count() const { return servers_.size(); }
  EtcdAddress address() const;
  TlsFiles files() const;
  uint16_t port(size_t server) const { return servers_[server].clientPort; }
  uint16_t peerPort(size_t server) const { return servers_[server].peerPort; }

  void kill(size_t server);  // kill -9, and waits for its end
  void restart(size_t server);
  // True iff the server answers that it leads.
  bool leads(size_t server) const;
  // Waits until every living server has a leader.
  bool waitServing() const;

  // Posts a request with the program curl, as an operator would; returns the answer.
  std::string post(size_t server, const std::string& path, const std::string& body) const;
  std::string postAnywhere(const std::string& path, const std::string& body) const;

  // From now on only users get in: root, with every right; `user`, with the keys of sluice; and
  // `other`, with none. All have the same password.
  void enableUsers(const std::string& user, const std::string& other,
                   const std::string& password) const;

 private:
  struct Server {
    uint16_t clientPort = 0;
    uint16_t peerPort = 0;
    pid_t pid = -1;
  };

  EtcdServers() = default;
  void launch(size_t server);
  std::string scheme() const { return hasTls_ ? "https" : "http"; }

  std::string program_;
  std::string folder_;
  std::vector<std::string> flags_;
  bool hasTls_ = false;
  std::vector<Server> servers_;
};

}  // namespace sluice::membership
