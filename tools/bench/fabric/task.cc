#include <tools/bench/fabric/task.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tools/bench/rank_messages.h>

namespace sluice::bench {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kFabricMark = "fabric-report ";

constexpr std::array kCases{FabricCase::kPair, FabricCase::kAllToAll, FabricCase::kOvertake,
                            FabricCase::kIdle};

}  // namespace

std::string_view name(FabricCase which) {
  switch (which) {
    case FabricCase::kPair: return "pair";
    case FabricCase::kAllToAll: return "alltoall";
    case FabricCase::kOvertake: return "overtake";
    case FabricCase::kIdle: return "idle";
  }
  return "?";
}

std::string FabricTask::toText() const {
  return Json{{"case", name(which)}, {"seconds", seconds}, {"warm_up", warmUpSeconds},
              {"rounds", rounds},    {"fifo", isFifo},     {"outlives_loss", outlivesLoss},
              {"busy", busySeconds}}
      .dump();
}

Result<FabricTask> parseFabricTask(std::string_view text) {
  FabricTask task;
  try {
    SLUICE_ASSIGN_OR_RETURN(const Json json, base::parseJson(text));
    const auto* found = std::ranges::find(kCases, json.at("case").get<std::string>(),
                                          [](FabricCase known) { return name(known); });
    if (found == kCases.end()) {
      return Status(Code::kInvalidArgument, fmt::format("there is no measurement '{}'", text));
    }
    task.which = *found;
    task.seconds = json.value("seconds", task.seconds);
    task.warmUpSeconds = json.value("warm_up", task.warmUpSeconds);
    task.rounds = json.value("rounds", task.rounds);
    task.isFifo = json.value("fifo", task.isFifo);
    task.outlivesLoss = json.value("outlives_loss", task.outlivesLoss);
    task.busySeconds = json.value("busy", task.busySeconds);
  } catch (const Json::exception& e) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is not a task for a rank: {}", text, e.what()));
  }
  return task;
}

std::string FabricReport::toText() const {
  return markedLine(kFabricMark, {{"received_gbit", receivedGbit},
                                  {"cpu_s", cpuSeconds},
                                  {"urgent_ms", urgentMs},
                                  {"strangers", strangers},
                                  {"connections", connections}});
}

std::optional<FabricReport> parseFabricReport(std::string_view line) {
  return readMarkedLine(kFabricMark, line, [](const Json& json) {
    return FabricReport{.receivedGbit = json.at("received_gbit").get<double>(),
                        .cpuSeconds = json.at("cpu_s").get<double>(),
                        .urgentMs = json.at("urgent_ms").get<std::vector<double>>(),
                        .strangers = json.at("strangers").get<uint64_t>(),
                        .connections = json.at("connections").get<uint64_t>()};
  });
}

}  // namespace sluice::bench
