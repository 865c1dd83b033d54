// Training by all-reduce: the engine behind allreduce, wfbp, mgwfbp, mgp3 and pipe, which differ
// only in which tensors travel together, and in how long a step waits for its result.
//
//   contribute    -> packed into its group's buffer
//   group whole   -> all-reduced when it is its turn: groups go in the order of backward on every
//                    rank, never in the order of arrival, or two ranks could wait for each other
//   mean here     -> every rank updates, or hands out the mean -> open the group's gates
//
// At the end of some steps mgwfbp's ranks agree on other groups (replanner.h): all gates open after
// that.
//
// With a *delay* the gates open as soon as the mean of so many steps before is here; until there is
// one, empty. A mean that is on its way stays so, also between steps: the checkpoint holds it.
#pragma once

#include <memory>
#include <span>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/reduction/reduction_settings.h>
#include <sluice/algorithms/strategy.h>

namespace sluice::algorithms {

// Writes the groups and what else all ranks must agree on into the plan. Refuses servers that do
// nothing else.
Status chooseReduction(const base::Config& config, std::span<const timing::Group> groups,
                       plan::PlanSpec& spec);

Result<std::unique_ptr<Strategy>> makeReduction(const Context& context);

}  // namespace sluice::algorithms
