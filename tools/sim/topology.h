// The shape of a simulated cluster: all hosts on one switch, or racks whose uplinks are slower than
// their hosts together; and the links that are unlike the others. A plain value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <sluice/base/status.h>
#include <sluice/base/units.h>

namespace sluice::sim {

// The rates of a link, frames and all: away from the host or rack, and to it.
struct LinkRates {
  Rate out{};
  Rate in{};

  friend bool operator==(const LinkRates&, const LinkRates&) = default;
};

struct Topology {
  uint32_t hostsPerRack = 0;     // 0: one switch
  double oversubscription = 1;   // the rates of a rack's hosts together / that of its uplink
  std::optional<Rate> uplink{};  // of every rack, instead
  std::map<uint32_t, LinkRates> hosts{};  // the links that are unlike the others; 0: like them
  std::map<uint32_t, LinkRates> racks{};
  std::string file{};  // that this was read from

  bool isStar() const { return hostsPerRack == 0; }
  // True iff hosts are alike, and racks too.
  bool isEven() const { return hosts.empty() && racks.empty() && !uplink; }
  uint32_t racksFor(uint32_t hostCount) const;  // 0 for a star
  // `rate` is that of the hosts which the topology says nothing about.
  LinkRates ofHost(uint32_t host, Rate rate) const;
  LinkRates ofRack(uint32_t rack, Rate rate) const;
  // Refuses a topology that names hosts or racks which are not there.
  Status check(uint32_t hostCount) const;
  std::string toString() const;  // as parseTopology() takes it

  friend bool operator==(const Topology&, const Topology&) = default;
};

// Takes "star", or "racks:16x4" for racks of 16 hosts whose uplinks are four times too slow for all
// of them, or the name of a file that ends with ".json" (topology_file.h).
Result<Topology> parseTopology(std::string_view text);

}  // namespace sluice::sim
