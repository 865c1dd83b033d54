#include <tools/bench/rank_report.h>

#include <nlohmann/json.hpp>

#include <tools/bench/rank_messages.h>

namespace sluice::bench {
namespace {

constexpr std::string_view kReplayMark = "replay-report ";

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Utilisation, stepSeconds, sentBits, receivedBits)
// Without the use of the network, which only some ranks report.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankReport, ends, cpuSeconds, wireBytes, payloadBytes,
                                   inversionMs, exactSteps)

std::string RankReport::toText() const {
  nlohmann::json json = *this;
  if (utilisation) json["utilisation"] = *utilisation;
  return markedLine(kReplayMark, json);
}

std::optional<RankReport> parseRankReport(std::string_view line) {
  return readMarkedLine(kReplayMark, line, [](const nlohmann::json& json) {
    auto report = json.get<RankReport>();
    if (json.contains("utilisation")) report.utilisation = json["utilisation"].get<Utilisation>();
    return report;
  });
}

}  // namespace sluice::bench
