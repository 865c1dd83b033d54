#include <tools/sim/host_costs.h>

#include <fstream>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/file.h>
#include <sluice/base/json.h>
#include <tools/sim/built_in_costs.h>

namespace sluice::sim {
namespace {

constexpr std::string_view kPlain = "plain";
constexpr std::string_view kEncrypted = "encrypted";

// Reads one cost. Refuses a negative one.
Status readCost(const nlohmann::json& costs, const char* name, double& cost) {
  const auto found = costs.find(name);
  if (found == costs.end() || !found->is_number() || found->get<double>() < 0)
    return {Code::kInvalidArgument, fmt::format("'{}' must be a number, 0 or more", name)};
  cost = found->get<double>();
  return base::ok();
}

}  // namespace

Result<HostCosts> readCosts(std::string_view json, std::string_view which) {
  SLUICE_ASSIGN_OR_RETURN(nlohmann::json file, base::parseJson(json));
  if (!file.is_object() || !file.contains(which) || !file[std::string(which)].is_object())
    return Status(Code::kInvalidArgument, fmt::format("there is no object '{}' of costs", which));
  const nlohmann::json& found = file[std::string(which)];
  HostCosts costs;
  SLUICE_RETURN_IF_ERROR(readCost(found, "message_sent_ns", costs.messageSent));
  SLUICE_RETURN_IF_ERROR(readCost(found, "message_received_ns", costs.messageReceived));
  SLUICE_RETURN_IF_ERROR(readCost(found, "byte_sent_ns", costs.byteSent));
  SLUICE_RETURN_IF_ERROR(readCost(found, "byte_received_ns", costs.byteReceived));
  SLUICE_RETURN_IF_ERROR(readCost(found, "byte_summed_ns", costs.byteSummed));
  SLUICE_RETURN_IF_ERROR(readCost(found, "byte_updated_ns", costs.byteUpdated));
  return costs;
}

Result<HostCosts> parseCosts(std::string_view text) {
  if (text == "free") return HostCosts{};
  if (text == kPlain || text == kEncrypted) return readCosts(kBuiltInCosts, text);
  constexpr std::string_view kEnd = ":encrypted";
  const bool isEncrypted = text.ends_with(kEnd);
  const std::string path(text.substr(0, text.size() - (isEncrypted ? kEnd.size() : 0)));
  if (!std::ifstream(path)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--cpu is '{}'; give plain, encrypted, free, or a file that "
                              "tools/sim/calibrate_hosts.py has written",
                              text));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string json, base::readFile("file of costs", path));
  auto costs = readCosts(json, isEncrypted ? kEncrypted : kPlain);
  if (!costs.isOk()) return costs.status().withContext(path);
  return costs;
}

}  // namespace sluice::sim
