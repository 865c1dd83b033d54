#include <tools/planner/cluster.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/file.h>
#include <sluice/base/json.h>
#include <tools/sim/topology_file.h>

namespace sluice::planner {
namespace {

using Json = nlohmann::json;

constexpr double kMostLoss = 0.5;
constexpr double kMostTimesSlower = 1000;

Status unusable(std::string text) {
  return {Code::kInvalidArgument, std::move(text)};
}

Result<std::string> textOf(const char* key, const Json& value, const char* example) {
  if (!value.is_string())
    return unusable(
        fmt::format("{} is {}; write a text, as \"{}\"", key, base::shortText(value), example));
  return value.get<std::string>();
}

Result<Rate> readRate(const Json& value) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, textOf("rate", value, "1gbit"));
  SLUICE_ASSIGN_OR_RETURN(const Rate rate, base::parseRate(text));
  if (rate.bitsPerSecond == 0) return unusable("rate must be above 0");
  return rate;
}

Result<Duration> readLatency(const Json& value) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, textOf("latency", value, "50us"));
  SLUICE_ASSIGN_OR_RETURN(const Duration latency, base::parseDuration(text));
  if (latency <= Duration::zero()) return unusable("latency must be above 0");
  return latency;
}

Result<double> readLoss(const Json& value) {
  const double loss = value.is_number() ? value.get<double>() : -1;
  if (!(loss >= 0 && loss <= kMostLoss))
    return unusable(fmt::format("loss is {}; give a share from 0 to 0.5", base::shortText(value)));
  return loss;
}

Result<std::vector<std::string>> readNames(const Json& value) {
  std::vector<std::string> names;
  for (const Json& name : value.is_array() ? value : Json::array({value})) {
    if (!name.is_string()) return unusable("names is a list of texts, as [\"a\", \"b\"]");
    names.push_back(name.get<std::string>());
  }
  return names;
}

Result<std::map<uint32_t, double>> readSlower(const Json& value) {
  if (!value.is_object()) return unusable("slower is a list by number, as {\"3\": 2.5}");
  std::map<uint32_t, double> slower;
  for (const auto& [key, factor] : value.items()) {
    const auto host = base::parseInteger(key);
    const double times = factor.is_number() ? factor.get<double>() : 0;
    if (!host.isOk() || *host < 0 || *host > UINT32_MAX)
      return unusable(fmt::format("invalid host number '{}'", key));
    if (!(times > 0 && times <= kMostTimesSlower)) {
      return unusable(
          fmt::format("slower has {} for host {}; give how many times longer it computes",
                      base::shortText(factor), key));
    }
    slower[static_cast<uint32_t>(*host)] = times;
  }
  return slower;
}

// Takes the keys that a topology does not have out of `root`.
Status takeOwnKeys(Json& root, Cluster& cluster) {
  const auto take = [&](const char* key, auto read, auto& target) -> Status {
    const auto found = root.find(key);
    if (found == root.end()) return base::ok();
    SLUICE_ASSIGN_OR_RETURN(target, read(*found));
    root.erase(key);
    return base::ok();
  };
  if (!root.contains("rate"))
    return unusable("there is no \"rate\": give the speed of a host's link, as \"1gbit\"");
  SLUICE_RETURN_IF_ERROR(take("rate", readRate, cluster.network.rate));
  SLUICE_RETURN_IF_ERROR(take("latency", readLatency, cluster.network.latency));
  SLUICE_RETURN_IF_ERROR(take("loss", readLoss, cluster.network.loss));
  SLUICE_RETURN_IF_ERROR(take("names", readNames, cluster.names));
  SLUICE_RETURN_IF_ERROR(take("slower", readSlower, cluster.slowerHosts));
  const auto readSwitch = [](const Json& value) -> Result<bool> {
    if (!value.is_boolean()) return unusable("encrypted is true or false");
    return value.get<bool>();
  };
  return take("encrypted", readSwitch, cluster.isEncrypted);
}

Result<Cluster> parse(Json root, const std::string& origin) {
  if (!root.is_object()) return unusable("it must be a JSON object");
  Cluster cluster;
  SLUICE_RETURN_IF_ERROR(takeOwnKeys(root, cluster));
  if (root.empty()) return cluster;
  SLUICE_ASSIGN_OR_RETURN(cluster.network.topology, sim::parseTopologyJson(root.dump(), origin));
  return cluster;
}

}  // namespace

std::string Cluster::nameOf(uint32_t host) const {
  const bool isNamed = host < names.size() && std::ranges::count(names, names[host]) == 1;
  return isNamed ? "host " + names[host] : fmt::format("host {}", host);
}

Result<Cluster> parseCluster(std::string_view json, const std::string& origin) {
  auto root = base::parseJson(json);
  if (!root.isOk()) return root.status().withContext(origin);
  auto cluster = parse(*std::move(root), origin);
  if (!cluster.isOk()) return base::inOneLine(cluster.status()).withContext(origin);
  return cluster;
}

Result<Cluster> readCluster(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, base::readFile("network", path));
  return parseCluster(text, path);
}

}  // namespace sluice::planner
