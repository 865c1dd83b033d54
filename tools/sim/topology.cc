#include <tools/sim/topology.h>

#include <algorithm>

#include <fmt/format.h>

#include <tools/sim/topology_file.h>

namespace sluice::sim {
namespace {

// Returns `common` where the topology says nothing about the link.
LinkRates ratesOf(const std::map<uint32_t, LinkRates>& links, uint32_t which, Rate common) {
  const auto found = links.find(which);
  LinkRates rates = found == links.end() ? LinkRates{} : found->second;
  if (rates.out.bitsPerSecond == 0) rates.out = common;
  if (rates.in.bitsPerSecond == 0) rates.in = common;
  return rates;
}

Status checkLast(const std::map<uint32_t, LinkRates>& links, uint32_t count,
                 std::string_view kind) {
  if (links.empty() || links.rbegin()->first < count) return base::ok();
  return {Code::kInvalidArgument,
          fmt::format("the topology has a rate for {} {}, and there are {} {}s, from 0 on", kind,
                      links.rbegin()->first, count, kind)};
}

}  // namespace

uint32_t Topology::racksFor(uint32_t hostCount) const {
  return isStar() ? 0 : (hostCount + hostsPerRack - 1) / hostsPerRack;
}

LinkRates Topology::ofHost(uint32_t host, Rate rate) const {
  return ratesOf(hosts, host, rate);
}

LinkRates Topology::ofRack(uint32_t rack, Rate rate) const {
  const double ofAll = static_cast<double>(rate.bitsPerSecond) * hostsPerRack;
  const Rate common{static_cast<uint64_t>(std::max(ofAll / oversubscription, 1.0))};
  return ratesOf(racks, rack, uplink.value_or(common));
}

Status Topology::check(uint32_t hostCount) const {
  SLUICE_RETURN_IF_ERROR(checkLast(hosts, hostCount, "host"));
  return checkLast(racks, racksFor(hostCount), "rack");
}

std::string Topology::toString() const {
  if (!file.empty()) return file;
  return isStar() ? "star" : fmt::format("racks:{}x{:g}", hostsPerRack, oversubscription);
}

Result<Topology> parseTopology(std::string_view text) {
  if (text == "star") return Topology{};
  if (text.ends_with(".json")) return readTopology(std::string(text));
  const Status bad(Code::kInvalidArgument,
                   fmt::format("--topology is '{}'; give star, or racks:16x4 for racks of 16 hosts "
                               "with uplinks 4 times too slow for all of them, or a file, as "
                               "cluster.json (docs/scale.md)",
                               text));
  constexpr std::string_view kRacks = "racks:";
  const size_t cross = text.find('x');
  if (!text.starts_with(kRacks) || cross == std::string_view::npos) return bad;
  const auto hosts = base::parseInteger(text.substr(kRacks.size(), cross - kRacks.size()));
  const auto oversubscription = base::parseNumber(text.substr(cross + 1));
  if (!hosts.isOk() || !oversubscription.isOk()) return bad;
  if (*hosts < 1 || *hosts > 1'000'000 || !(*oversubscription > 0)) return bad;
  return Topology{.hostsPerRack = static_cast<uint32_t>(*hosts),
                  .oversubscription = *oversubscription};
}

}  // namespace sluice::sim
