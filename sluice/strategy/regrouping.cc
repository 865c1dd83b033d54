#include <sluice/strategy/regrouping.h>

#include <sluice/base/options.h>
#include <sluice/strategy/packing.h>

namespace sluice::strategy {
namespace {

// Of an iteration's time, at most; more is taken for noise.
constexpr double kWorthwhile = 0.95;

}  // namespace

std::vector<plan::Group> mergeTensors(const base::Config& config, const plan::Costs& costs) {
  const bool isPaper = config.text(option::kMerge) == "paper";
  return (isPaper ? plan::mergeByAlgorithm1(costs.layers, costs.wire)
                  : plan::mergeExactly(costs.layers, costs.wire))
      .groups;
}

std::optional<Regrouping> regroup(const base::Config& config, const plan::Costs& costs, const Model& model,
                                  std::span<const plan::Group> groups) {
  const auto secondsWith = [&](std::span<const plan::Group> some) {
    return plan::iterationSeconds(costs.layers, costs.wire, some);
  };
  Regrouping next{.groups = splitByType(model, mergeTensors(config, costs)),
                  .secondsBefore = secondsWith(groups)};
  next.seconds = secondsWith(next.groups);
  if (next.seconds > kWorthwhile * next.secondsBefore) return std::nullopt;
  return next;
}

}  // namespace sluice::strategy
