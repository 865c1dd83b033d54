// The hosts and links that a plan is made for. A plain value; reading a file is for start-up.
//
//   {"rate": "1gbit", "latency": "50us", "loss": 0.01, "encrypted": true,
//    "names": ["a", "b", "c", "d"], "hosts": {"2": {"rate": "300mbit"}}, "slower": {"3": 3}}
//
// "rate" is that of every host's link, and "hosts" has those that differ. "slower" has the hosts
// that compute so many times longer than the profile says. Only "rate" is required. The keys of a
// topology file (sim/topology_file.h) are known too.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>
#include <tools/sim/segment_network.h>

namespace sluice::planner {

struct Cluster {
  sim::NetworkOptions network{};  // its number of hosts is filled in later
  bool isEncrypted = true;
  std::vector<std::string> names{};  // of the hosts, from 0 on
  std::map<uint32_t, double> slowerHosts{};

  std::string nameOf(uint32_t host) const;  // "host c"; "host 2" if it has no name of its own
};

// `origin` names the text in errors.
Result<Cluster> parseCluster(std::string_view json, const std::string& origin);
Result<Cluster> readCluster(const std::string& path);

}  // namespace sluice::planner
