#include <tools/sim/topology_file.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/file.h>
#include <sluice/base/json.h>

namespace sluice::sim {
namespace {

using Json = nlohmann::json;

Status wrong(std::string_view what) {
  return {Code::kInvalidArgument, std::string(what)};
}

Result<Rate> parseLinkRate(const std::string& key, const Json& value) {
  if (!value.is_string())
    return wrong(fmt::format("{} is {}; write a rate, as \"10gbit\"", key, base::shortText(value)));
  auto rate = base::parseRate(value.get<std::string>());
  if (!rate.isOk()) return rate.status().withContext(key);
  if (rate->bitsPerSecond == 0) return wrong(fmt::format("{} must be above 0", key));
  return rate;
}

Result<LinkRates> parseLink(const std::string& name, const Json& object) {
  if (!object.is_object() || object.empty())
    return wrong(fmt::format("{} needs a rate, as {{\"rate\": \"1gbit\"}}", name));
  LinkRates rates;
  for (const auto& [key, value] : object.items()) {
    if (key != "rate" && key != "out" && key != "in")
      return wrong(fmt::format("{} has '{}'; give rate, out or in", name, key));
    if (key == "rate" && object.size() > 1)
      return wrong(fmt::format("{} has a rate for both directions and one besides", name));
    SLUICE_ASSIGN_OR_RETURN(const Rate rate,
                            parseLinkRate(fmt::format("{}'s {}", name, key), value));
    if (key != "in") rates.out = rate;
    if (key != "out") rates.in = rate;
  }
  return rates;
}

Result<std::map<uint32_t, LinkRates>> parseLinks(std::string_view kind, const Json& object) {
  if (!object.is_object())
    return wrong(
        fmt::format("{}s is a list by number, as {{\"3\": {{\"rate\": \"1gbit\"}}}}", kind));
  std::map<uint32_t, LinkRates> links;
  for (const auto& [key, value] : object.items()) {
    const auto number = base::parseInteger(key);
    if (!number.isOk() || *number < 0 || *number > UINT32_MAX)
      return wrong(fmt::format("invalid {} number '{}'", kind, key));
    SLUICE_ASSIGN_OR_RETURN(links[static_cast<uint32_t>(*number)],
                            parseLink(fmt::format("{} {}", kind, key), value));
  }
  return links;
}

Result<Topology> parseRoot(const Json& root) {
  if (!root.is_object()) return wrong("a topology is one JSON object");
  Topology topology;
  for (const auto& [key, value] : root.items()) {
    if (key == "hosts_per_rack") {
      if (!value.is_number_integer() || value < 1 || value > 1'000'000)
        return wrong(
            fmt::format("hosts_per_rack is {}; give a number from 1 on", base::shortText(value)));
      topology.hostsPerRack = value.get<uint32_t>();
    } else if (key == "uplink") {
      SLUICE_ASSIGN_OR_RETURN(topology.uplink, parseLinkRate(key, value));
    } else if (key == "hosts") {
      SLUICE_ASSIGN_OR_RETURN(topology.hosts, parseLinks("host", value));
    } else if (key == "racks") {
      SLUICE_ASSIGN_OR_RETURN(topology.racks, parseLinks("rack", value));
    } else {
      return wrong(
          fmt::format("'{}' is unknown; give hosts_per_rack, uplink, racks or hosts", key));
    }
  }
  if (topology.isStar() && (topology.uplink || !topology.racks.empty()))
    return wrong("uplink and racks need hosts_per_rack");
  return topology;
}

}  // namespace

Result<Topology> parseTopologyJson(std::string_view json, const std::string& origin) {
  const auto root = base::parseJson(json);
  if (!root.isOk()) return root.status().withContext(origin);
  auto topology = parseRoot(*root);
  if (!topology.isOk()) return base::inOneLine(topology.status()).withContext(origin);
  topology->file = origin;
  return topology;
}

Result<Topology> readTopology(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, base::readFile("topology", path));
  return parseTopologyJson(text, path);
}

}  // namespace sluice::sim
