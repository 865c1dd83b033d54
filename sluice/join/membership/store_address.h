// The option `members` taken apart: which store a job's membership is agreed in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::membership {

inline constexpr uint16_t kEtcdPort = 2379;

// The servers of an etcd cluster.
struct EtcdAddress {
  bool hasTls = false;
  std::vector<std::string> servers;  // "10.0.0.1:2379", "[::1]:2379", "etcd-0.example:2379"

  std::string toString() const;
  friend bool operator==(const EtcdAddress&, const EtcdAddress&) = default;
};

// Takes "etcd://a,b:2379,[::1]:4000", or etcds:// for TLS. A server without a port has kEtcdPort. An
// address with a '@' is refused, and no error repeats it: it may hold a password.
Result<EtcdAddress> parseEtcdAddress(std::string_view text);

}  // namespace sluice::membership
