#include <tools/bench/rank_report.h>

#include <nlohmann/json.hpp>

#include <tools/bench/marked_line.h>

namespace sluice::bench {
namespace {

constexpr std::string_view kReplayMark = "replay-report ";

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Utilisation, stepSeconds, sentBits, receivedBits)

std::string RankReport::toText() const {
  nlohmann::json json{{"ends", ends},
                      {"cpuSeconds", cpuSeconds},
                      {"wireBytes", wireBytes},
                      {"payloadBytes", payloadBytes},
                      {"inversionMs", inversionMs},
                      {"exactSteps", exactSteps}};
  if (utilisation) json["utilisation"] = *utilisation;
  return markedLine(kReplayMark, json);
}

std::optional<RankReport> parseRankReport(std::string_view line) {
  return readMarkedLine(kReplayMark, line, [](const nlohmann::json& json) {
    RankReport report;
    json.at("ends").get_to(report.ends);
    json.at("cpuSeconds").get_to(report.cpuSeconds);
    json.at("wireBytes").get_to(report.wireBytes);
    json.at("payloadBytes").get_to(report.payloadBytes);
    json.at("inversionMs").get_to(report.inversionMs);
    json.at("exactSteps").get_to(report.exactSteps);
    if (json.contains("utilisation")) report.utilisation = json["utilisation"].get<Utilisation>();
    return report;
  });
}

}  // namespace sluice::bench
