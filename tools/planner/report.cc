#include <tools/planner/report.h>

#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/data/timing/bounds.h>

namespace sluice::planner {
namespace {

using nlohmann::ordered_json;

// Returns a number where the option takes one, as a user would write it.
ordered_json valueOf(const base::Option& option, const std::string& text) {
  if (option.kind != base::Kind::kInteger) return text;
  const auto number = base::parseInteger(text);
  return number.isOk() ? ordered_json(*number) : ordered_json(text);
}

ordered_json settingsOf(const Candidate& candidate) {
  auto settings = ordered_json::object();
  for (const auto& [option, value] : candidate.settings)
    settings[std::string(option->name)] = valueOf(*option, value);
  return settings;
}

ordered_json jsonOf(const Prediction& prediction) {
  ordered_json json{{"name", prediction.candidate.name()},
                    {"algorithm", prediction.candidate.algorithm->name},
                    {"settings", settingsOf(prediction.candidate)},
                    {"class", name(prediction.candidate.exactness)},
                    {"iteration_s", prediction.iterationSeconds},
                    {"bound_s", nullptr},
                    {"bytes", prediction.bytes},
                    {"messages", prediction.messages},
                    {"memory_bytes", prediction.memoryBytes},
                    {"busiest_loop_share", prediction.busiestLoop},
                    {"predicted_by", name(prediction.means)},
                    {"accuracy", prediction.candidate.accuracy()}};
  if (prediction.sendsEverything) json["bound_s"] = prediction.boundSeconds;
  return json;
}

}  // namespace

ordered_json toJson(const Question& question, const PlanReport& answer) {
  const PlanChoice& decision = answer.decision;
  auto best = ordered_json::array();
  for (int i = 0; i < kExactnesses; ++i) {
    const Prediction* found = bestOf(decision, static_cast<Exactness>(i));
    if (found != nullptr) best.push_back(jsonOf(*found));
  }
  auto all = ordered_json::array();
  for (const Prediction& one : decision.predictions) all.push_back(jsonOf(one));
  const sim::NetworkOptions& network = question.cluster.network;
  return {{"kind", "plan"},
          {"profile", question.model.model},
          {"hosts", network.hosts},
          {"rate_bits_per_s", network.rate.bitsPerSecond},
          {"encrypted", question.cluster.isEncrypted},
          {"compute_s", question.computeSeconds},
          {"other_s", question.otherSeconds},
          {"choice", jsonOf(decision.chosen())},
          {"cause", answer.cause},
          {"gains",
           {{"twice_the_rate_s", answer.gains.twiceTheRate},
            {"ten_times_the_rate_s", answer.gains.tenTimesTheRate},
            {"half_the_bytes_s", answer.gains.halfTheBytes}}},
          {"best", std::move(best)},
          {"candidates", std::move(all)},
          {"not_predicted", decision.unknown}};
}

ordered_json configurationOf(const Question& question, const Prediction& chosen) {
  const Candidate& candidate = chosen.candidate;
  ordered_json config{{"algorithm", candidate.algorithm->name}};
  config.update(settingsOf(candidate));
  if (!candidate.algorithm->takes(option::kLayerTimes)) return config;
  // Merging goes by these.
  std::error_code error;
  const bool isFile = std::filesystem::exists(question.profile, error);
  config[std::string(option::kLayerTimes.name)] =
      isFile ? std::filesystem::absolute(question.profile, error).string() : question.profile;
  config[std::string(option::kComputeTime.name)] =
      fmt::format("{}us", std::llround(question.computeSeconds * 1e6));
  config[std::string(option::kReductionRate.name)] =
      base::formatRate(timing::payloadRate(question.cluster.network.rate));
  return config;
}

std::string summaryOf(const Question& question, const PlanReport& answer) {
  const Prediction& chosen = answer.decision.chosen();
  const auto gain = [&](double seconds) {
    return fmt::format("{:.4g} s ({:.2f} times as fast)", seconds,
                       chosen.iterationSeconds / seconds);
  };
  std::string text = fmt::format(
      "choice: {}, predicted {:.4g} s an iteration\nwhy: {}.\n2 x the bandwidth: {}; 10 x: {}; "
      "half the bytes: {}\n",
      chosen.candidate.name(), chosen.iterationSeconds, answer.cause,
      gain(answer.gains.twiceTheRate), gain(answer.gains.tenTimesTheRate),
      gain(answer.gains.halfTheBytes));
  for (const auto exactness : {Exactness::kDelayed, Exactness::kLossy}) {
    const Prediction* best = bestOf(answer.decision, exactness);
    if (best == nullptr || best->iterationSeconds >= chosen.iterationSeconds) continue;
    const std::string accuracy = best->candidate.accuracy();
    text += fmt::format("faster, but {}: {}, {:.4g} s; accuracy in the study: {}\n",
                        name(exactness), best->candidate.name(), best->iterationSeconds,
                        accuracy.empty() ? "not measured" : accuracy);
  }
  if (!answer.decision.unknown.empty()) {
    text += fmt::format("not predicted with {} hosts: {} candidates\n",
                        question.cluster.network.hosts, answer.decision.unknown.size());
  }
  return text;
}

}  // namespace sluice::planner
