#include <tools/planner/decision.h>

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/base/options.h>

namespace sluice::planner {
namespace {

// Two predictions that differ by less count as equal.
constexpr double kError = 1.02;

std::optional<size_t> fastest(const std::vector<Prediction>& sorted,
                              const std::function<bool(const Candidate&)>& qualifies) {
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (qualifies(sorted[i].candidate)) return i;
  }
  return std::nullopt;
}

bool isDefault(const Candidate& candidate) {
  return candidate.algorithm->name == option::kAlgorithm.fallback && candidate.settings.empty();
}

bool hasSameBits(const Candidate& candidate) {
  return candidate.exactness == Exactness::kSameBits;
}

// Returns the difference that explains why `other` is slower than `chosen`.
std::string reasonFor(const Prediction& other, const Prediction& chosen) {
  constexpr double kMore = 1.05;
  constexpr double kLarge = 4;  // times as many bytes in a message
  constexpr double kBusy = 0.85;
  if (other.messages > 0 && other.busiestLoop > kBusy) {
    return fmt::format(
        "its {:.0f} messages keep a host's communication thread busy for {:.0f} % of "
        "the time",
        other.messages, other.busiestLoop * 100);
  }
  if (other.bytes > kMore * chosen.bytes && chosen.bytes > 0) {
    return fmt::format("it sends {:.1f} MB in an iteration, where {} sends {:.1f} MB",
                       other.bytes / 1e6, chosen.candidate.name(), chosen.bytes / 1e6);
  }
  if (other.candidate.algorithm->sendsOldestFirst) {
    return "it sends gradients in the order of the backward pass, so the first layers, which the "
           "next forward pass needs first, come last";
  }
  if (other.messages > 0 && chosen.messages > 0 &&
      other.bytes / other.messages > kLarge * chosen.bytes / chosen.messages) {
    return fmt::format(
        "its messages have {:.0f} kB on average, so an urgent one waits longer "
        "behind others",
        other.bytes / other.messages / 1e3);
  }
  return "its messages wait longer for each other on the same links";
}

}  // namespace

Result<PlanChoice> decide(std::vector<Prediction> predictions, std::vector<std::string> unknown) {
  std::ranges::sort(predictions, {}, &Prediction::iterationSeconds);
  const auto best = fastest(predictions, [](const Candidate& c) { return isExact(c.exactness); });
  if (!best) {
    return Status(Code::kInvalidArgument,
                  "no exact plan can be predicted for this cluster: simulate one algorithm with "
                  "'sluice simulate'");
  }
  PlanChoice decision{std::move(predictions), std::move(unknown), *best};
  const double limit = kError * decision.predictions[*best].iterationSeconds;
  for (const auto& preferred : {&isDefault, &hasSameBits}) {
    const auto found = fastest(decision.predictions, preferred);
    if (!found || decision.predictions[*found].iterationSeconds > limit) continue;
    decision.choice = *found;
    break;
  }
  return decision;
}

Result<PlanChoice> answer(
    const Question& question,
    const std::function<void(std::string_view name, size_t count)>& onCandidate) {
  SLUICE_ASSIGN_OR_RETURN(const base::Config config, configFor(question));
  SLUICE_ASSIGN_OR_RETURN(
      const plan::Roles roles,
      plan::parseRoles(config.text(option::kServers), question.cluster.network.hosts));
  SLUICE_ASSIGN_OR_RETURN(auto all, candidates(config, question.model.toModel(), roles));
  std::vector<Prediction> predictions;
  std::vector<std::string> unknown;
  std::erase_if(all, [&](const Candidate& one) { return one.exactness > question.worst; });
  for (const Candidate& candidate : all) {
    onCandidate(candidate.name(), all.size());
    auto prediction = predict(question, candidate);
    if (!prediction.isOk()) return prediction.status().withContext(candidate.name());
    if (*prediction)
      predictions.push_back(**std::move(prediction));
    else
      unknown.push_back(candidate.name());
  }
  return decide(std::move(predictions), std::move(unknown));
}

const Prediction* bestOf(const PlanChoice& decision, Exactness exactness) {
  const auto found = std::ranges::find(decision.predictions, exactness,
                                       [](const Prediction& p) { return p.candidate.exactness; });
  return found == decision.predictions.end() ? nullptr : &*found;
}

Result<std::string> whyNot(const PlanChoice& decision, std::string_view name) {
  const auto found = std::ranges::find(decision.predictions, name,
                                       [](const Prediction& p) { return p.candidate.name(); });
  const Prediction& chosen = decision.chosen();
  if (found == decision.predictions.end()) {
    if (std::ranges::find(decision.unknown, name) != decision.unknown.end()) {
      return fmt::format("{} cannot be predicted for so many hosts; try 'sluice simulate'", name);
    }
    std::vector<std::string> names;
    for (const Prediction& one : decision.predictions) names.push_back(one.candidate.name());
    return Status(Code::kInvalidArgument, fmt::format("--why: there is no candidate '{}'; give one "
                                                      "of: {}",
                                                      name, fmt::join(names, ", ")));
  }
  const Prediction& other = *found;
  if (&other == &chosen) return fmt::format("{} is the choice", name);
  const double times = other.iterationSeconds / chosen.iterationSeconds;
  const std::string head =
      fmt::format("{} would take {:.4g} s, {:.2f} times the {:.4g} s of {}", name,
                  other.iterationSeconds, times, chosen.iterationSeconds, chosen.candidate.name());
  if (!isExact(other.candidate.exactness)) {
    const std::string accuracy = other.candidate.accuracy();
    return fmt::format("{}; its class is '{}', which is never chosen without you{}{}", head,
                       planner::name(other.candidate.exactness),
                       accuracy.empty() ? "" : ". Accuracy: ", accuracy);
  }
  if (times <= kError) {
    return fmt::format("{}: equal within the error of a prediction, and {} {}", head,
                       chosen.candidate.name(),
                       isDefault(chosen.candidate) ? "is the default" : "has the same bits");
  }
  return fmt::format("{}: {}", head, reasonFor(other, chosen));
}

}  // namespace sluice::planner
