// What the algorithms that reduce agree on besides the plan's slices, as a value and as the plan's settings.
// Pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/codec/codec.h>
#include <sluice/collective/method.h>
#include <sluice/plan/merging.h>
#include <sluice/plan/plan.h>

namespace sluice::strategy {

struct ReductionSettings {
  std::vector<plan::Group> groups;
  std::vector<collective::Method> methods;  // by group
  const codec::Codec* codec = nullptr;
  size_t atOnce = 1;        // reductions under way
  size_t delay = 0;         // in steps, from a gradient to its use
  uint64_t warmUp = 0;      // steps at the beginning without it
  bool byPriority = false;  // what the next forward pass needs first overtakes the rest
};

Result<ReductionSettings> settingsOf(const plan::PlanSpec& spec);

// Add to the other settings. REQUIRES: the spec has them (chooseReduction() in reduction.h).
void setDelay(plan::PlanSpec& spec, size_t delay, uint64_t warmUp);
void setByPriority(plan::PlanSpec& spec);  // all groups at once

// "0-2,3-3": groups of tensors as the plan holds them.
std::string groupsText(std::span<const plan::Group> groups);
Result<std::vector<plan::Group>> parseGroups(const std::string& text, size_t tensors);

// How each group is reduced, as the plan holds it: one name for all, or for `collective=auto` one for each,
// by what a message of its size costs.
Result<std::string> methodsText(const Config& config, const plan::Model& model,
                                std::span<const plan::Group> groups);

}  // namespace sluice::strategy
