#include <sluice/algorithms/reduction/regrouping.h>

#include <sluice/algorithms/reduction/packing.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

// New groups must bring an iteration to at most this share of its time; a smaller gain is taken for
// noise.
constexpr double kWorthwhile = 0.95;

}  // namespace

std::vector<timing::Group> mergeTensors(const base::Config& config, const timing::Costs& costs) {
  const bool isPaper = config.text(option::kMerge) == "paper";
  return (isPaper ? timing::mergeByAlgorithm1(costs.layers, costs.wire)
                  : timing::mergeExactly(costs.layers, costs.wire))
      .groups;
}

std::optional<Regrouping> regroup(const base::Config& config, const timing::Costs& costs,
                                  const Model& model, std::span<const timing::Group> groups) {
  const auto secondsWith = [&](std::span<const timing::Group> some) {
    return timing::iterationSeconds(costs.layers, costs.wire, some);
  };
  // Both times come from one formula and one set of costs, so that an error of the formula
  // falls on both sides. Only a clear gain changes the groups: a change costs a copy of all
  // state, and noise would change them back at the next boundary.
  Regrouping next{.groups = splitByType(model, mergeTensors(config, costs)),
                  .secondsBefore = secondsWith(groups)};
  next.seconds = secondsWith(next.groups);
  if (next.seconds > kWorthwhile * next.secondsBefore) return std::nullopt;
  return next;
}

}  // namespace sluice::algorithms
