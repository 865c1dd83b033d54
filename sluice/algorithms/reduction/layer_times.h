// The costs that merging goes by: the time that layers compute, and the price of an all-reduce.
// From the configuration. Pure functions, any thread.
#pragma once

#include <optional>

#include <sluice/base/config.h>
#include <sluice/data/plan/plan.h>
#include <sluice/data/timing/merging.h>

namespace sluice::algorithms {

// Returns the costs by tensor, from --layer-times and --compute-time, and from --reduction-start
// and --reduction-rate. Without a profile a layer's time goes by its size, two thirds of it in
// backward.
Result<timing::Costs> reductionCosts(const base::Config& config, const Model& model,
                                     const plan::Roles& roles);

// Returns the time of an iteration by these costs, if the plan's algorithm reduces in groups, one
// at a time or by priority; empty for others.
Result<std::optional<double>> plannedSeconds(const base::Config& config,
                                             const plan::PlanSpec& spec);

}  // namespace sluice::algorithms
