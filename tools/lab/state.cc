#include <tools/lab/state.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/file.h>
#include <sluice/base/json.h>

namespace sluice::lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostStateBytes = size_t{4} << 20;

Result<State> stateFrom(const nlohmann::json& json) {
  State state;
  SLUICE_ASSIGN_OR_RETURN(state.layout.subnet, parseSubnet(json.at("subnet").get<std::string>()));
  state.layout.name = json.at("name").get<std::string>();
  state.layout.hosts = json.at("hosts").get<int>();
  state.layout.etcd = json.value("etcd", 0);
  state.layout.rate = Rate{json.at("rate").get<uint64_t>()};
  state.layout.delay = Duration(json.at("delay-ns").get<Duration::rep>());
  state.layout.congestionControl = json.at("congestion-control").get<std::string>();
  state.complete = json.at("complete").get<bool>();
  for (const auto& rate : json.at("rates")) state.rates.push_back(Rate{rate.get<uint64_t>()});
  for (const auto& host : json.at("cut-hosts")) state.faults.cutHosts.insert(host.get<int>());
  for (const auto& pair : json.at("cut-pairs")) {
    state.faults.cutPairs.emplace(pair.at(0).get<int>(), pair.at(1).get<int>());
  }
  for (const auto& drop : json.at("drops")) {
    state.faults.dropPercent[drop.at("host").get<int>()] = drop.at("percent").get<double>();
  }
  SLUICE_RETURN_IF_ERROR(state.layout.check());
  if (state.rates.size() != static_cast<size_t>(state.layout.hosts)) {
    return Status(Code::kDataLoss,
                  fmt::format("{} rates for {} hosts", state.rates.size(), state.layout.hosts));
  }
  return state;
}

}  // namespace

std::string toJson(const State& state) {
  Json json;
  json["name"] = state.layout.name;
  json["hosts"] = state.layout.hosts;
  json["etcd"] = state.layout.etcd;
  json["rate"] = state.layout.rate.bitsPerSecond;
  json["subnet"] = state.layout.subnet.toString();
  json["delay-ns"] = state.layout.delay.count();
  json["congestion-control"] = state.layout.congestionControl;
  json["complete"] = state.complete;
  json["rates"] = Json::array();
  for (const Rate rate : state.rates) json["rates"].push_back(rate.bitsPerSecond);
  json["cut-hosts"] = state.faults.cutHosts;
  json["cut-pairs"] = state.faults.cutPairs;
  json["drops"] = Json::array();
  for (const auto& [host, percent] : state.faults.dropPercent) {
    json["drops"].push_back({{"host", host}, {"percent", percent}});
  }
  return json.dump(2) + "\n";
}

Result<State> stateFromJson(const std::string& text) {
  try {
    SLUICE_ASSIGN_OR_RETURN(const auto json, base::parseJson(text, {.mostBytes = kMostStateBytes}));
    return stateFrom(json);
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kDataLoss, error.what());
  }
}

Result<State> StateStore::read(const std::string& lab) const {
  if (!std::ifstream(fileOf(lab))) {
    return Status(
        Code::kNotFound,
        fmt::format("there is no lab '{}'; make it with 'sluice lab up --name {}'", lab, lab));
  }
  const auto text = base::readFile("state", fileOf(lab).string(), kMostStateBytes);
  auto state = text.isOk() ? stateFromJson(*text) : Result<State>(text.status());
  if (!state.isOk()) {
    return state.status().withContext(fmt::format(
        "{} is damaged; 'sluice lab down --name {}' clears it", fileOf(lab).string(), lab));
  }
  return state;
}

Status StateStore::write(const State& state) const {
  const auto path = fileOf(state.layout.name);
  const auto draft = draftOf(state.layout.name);
  {
    std::ofstream file(draft, std::ios::trunc);
    file << toJson(state);
    file.close();
    if (!file) return base::fromErrno("write " + draft.string());
  }
  std::error_code error;
  std::filesystem::rename(draft, path, error);
  return error ? base::fromErrno("rename to " + path.string(), error.value()) : base::ok();
}

Status StateStore::remove(const std::string& lab) const {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(lab + ".") && name != draftOf(lab).filename()) continue;
    std::filesystem::remove_all(entry.path(), error);
    if (error) return base::fromErrno("remove " + entry.path().string(), error.value());
  }
  return base::ok();
}

std::vector<std::string> StateStore::labs() const {
  std::vector<std::string> names;
  std::error_code error;  // no directory: no labs
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace sluice::lab
