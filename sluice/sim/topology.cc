#include <sluice/sim/topology.h>

#include <fmt/format.h>

#include <sluice/base/units.h>

namespace sluice::sim {

double Topology::modelsOverUplink(uint32_t hosts) const {
  if (isStar() || hosts <= hostsPerRack) return 0;
  return oversubscription * 2 * (hosts - hostsPerRack) / hosts;
}

std::string Topology::toString() const {
  return isStar() ? "star" : fmt::format("racks:{}x{:g}", hostsPerRack, oversubscription);
}

Result<Topology> parseTopology(std::string_view text) {
  if (text == "star") return Topology{};
  const Status bad(Code::kInvalidArgument,
                   fmt::format("--topology is '{}'; give star, or racks:16x4 for racks of 16 hosts "
                               "with uplinks 4 times too slow for all of them",
                               text));
  constexpr std::string_view kRacks = "racks:";
  const size_t cross = text.find('x');
  if (!text.starts_with(kRacks) || cross == std::string_view::npos) return bad;
  const auto hosts = base::parseInteger(text.substr(kRacks.size(), cross - kRacks.size()));
  const auto oversubscription = base::parseNumber(text.substr(cross + 1));
  if (!hosts.isOk() || !oversubscription.isOk()) return bad;
  if (*hosts < 1 || *hosts > 1'000'000 || !(*oversubscription > 0)) return bad;
  return Topology{static_cast<uint32_t>(*hosts), *oversubscription};
}

}  // namespace sluice::sim
