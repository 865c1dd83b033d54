// The shape of a simulated cluster: all hosts on one switch, or racks whose uplinks are slower than
// their hosts together. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sluice/base/status.h>

namespace sluice::sim {

struct Topology {
  uint32_t hostsPerRack = 0;    // 0: one switch
  double oversubscription = 1;  // the rates of a rack's hosts together / that of its uplink

  bool isStar() const { return hostsPerRack == 0; }
  // Returns how many times the model crosses the uplink of a rack in one direction, in units of a
  // host's own line, if every rank pushes its gradient and gets the parameters, and slices are
  // shared equally among all hosts. 0 where there is no uplink in the way.
  double modelsOverUplink(uint32_t hosts) const;
  std::string toString() const;  // as parseTopology() takes it

  friend bool operator==(const Topology&, const Topology&) = default;
};

// "star", or "racks:16x4": racks of 16 hosts, whose uplinks are four times too slow for all of
// them.
Result<Topology> parseTopology(std::string_view text);

}  // namespace sluice::sim
