// Synchronous training by all-reduce: the engine behind allreduce, wfbp and mgwfbp, which differ only in
// which tensors travel together.
//
//   gradientReady -> packed into its group's buffer
//   group whole   -> all-reduced when it is its turn: groups go in the order of backward on every rank,
//                    never in the order of arrival, or two ranks could wait for each other
//   mean here     -> every rank updates, or hands out the mean -> open the group's gates
#pragma once

#include <memory>
#include <span>
#include <string>

#include <sluice/plan/merging.h>
#include <sluice/strategy/strategy.h>

namespace sluice::strategy {

// Writes the groups and what else all ranks must agree on into the plan. Refuses servers that do nothing
// else.
Status chooseReduction(const Config& config, std::span<const plan::Group> groups, plan::PlanSpec& spec);

Result<std::unique_ptr<Strategy>> makeReduction(const Rooms& rooms);

// "0-2,3-3": groups of tensors as the plan holds them.
std::string groupsText(std::span<const plan::Group> groups);
Result<std::vector<plan::Group>> parseGroups(const std::string& text, size_t tensors);

}  // namespace sluice::strategy
