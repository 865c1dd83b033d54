#include <sluice/bench/rank_report.h>

#include <nlohmann/json.hpp>

namespace sluice::bench {
namespace {

constexpr std::string_view kReplayMark = "replay-report ";

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Utilisation, stepSeconds, sentBits, receivedBits)

std::string RankReport::toText() const {
  nlohmann::json json{{"iterationSeconds", iterationSeconds},
                      {"ends", ends},
                      {"cpuSeconds", cpuSeconds},
                      {"wireBytes", wireBytes},
                      {"payloadBytes", payloadBytes},
                      {"inversionMs", inversionMs},
                      {"exactSteps", exactSteps}};
  if (utilisation) json["utilisation"] = *utilisation;
  return std::string(kReplayMark) + json.dump();
}

std::optional<RankReport> parseRankReport(std::string_view line) {
  if (!line.starts_with(kReplayMark)) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(line.substr(kReplayMark.size()));
    RankReport report;
    json.at("iterationSeconds").get_to(report.iterationSeconds);
    json.at("ends").get_to(report.ends);
    json.at("cpuSeconds").get_to(report.cpuSeconds);
    json.at("wireBytes").get_to(report.wireBytes);
    json.at("payloadBytes").get_to(report.payloadBytes);
    json.at("inversionMs").get_to(report.inversionMs);
    json.at("exactSteps").get_to(report.exactSteps);
    if (json.contains("utilisation")) report.utilisation = json["utilisation"].get<Utilisation>();
    return report;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // whoever needs it sees that it is missing
  }
}

}  // namespace sluice::bench
