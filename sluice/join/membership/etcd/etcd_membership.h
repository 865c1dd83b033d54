// Membership agreed in etcd. libcurl must be installed; its absence is an error of one line.
#pragma once

#include <memory>

#include <sluice/base/config.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/join/membership/membership.h>
#include <sluice/join/membership/store_membership.h>

namespace sluice::membership {

// Makes a member's view of its job. `address` is as parseEtcdAddress() takes it; the files are those
// of TLS, in PEM, and may be empty. A user has a file with the password, which nobody else may open.
// Warns of servers without TLS beyond this host. Does not wait: health() says whether the servers
// answer. REQUIRES: `loop` outlives the result, which belongs to it.
struct EtcdSettings {
  std::string address;
  std::string caFile = {};
  std::string certificateFile = {};
  std::string keyFile = {};
  std::string user = {};
  std::string passwordFile = {};
};
Result<std::unique_ptr<Membership>> makeEtcdMembership(net::EpollLoop& loop,
                                                       const EtcdSettings& settings,
                                                       const StoreOptions& options);

// The settings in the options whose names begin with `members`.
EtcdSettings etcdSettings(const base::Config& config);

}  // namespace sluice::membership
