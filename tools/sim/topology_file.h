// Reads the topology of a simulated cluster from JSON:
//
//   {"hosts_per_rack": 16, "uplink": "40gbit",
//    "racks": {"2": {"rate": "10gbit"}},
//    "hosts": {"0": {"rate": "25gbit"}, "7": {"out": "10gbit", "in": "1gbit"}}}
//
// Every key may be left out; "rate" stands for both directions. An uplink needs racks.
#pragma once

#include <string>
#include <string_view>

#include <tools/sim/topology.h>

namespace sluice::sim {

// `origin` names the text in errors.
Result<Topology> parseTopologyJson(std::string_view json, const std::string& origin);

Result<Topology> readTopology(const std::string& path);

}  // namespace sluice::sim
