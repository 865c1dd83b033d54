// The agreement of ranks that all-reduce, besides the plan's slices: as a value and as the plan's
// settings. Pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/data/codec/codec.h>
#include <sluice/data/collective/method.h>
#include <sluice/data/plan/plan.h>
#include <sluice/data/timing/merging.h>

namespace sluice::algorithms {

struct ReductionSettings {
  std::vector<timing::Group> groups;
  std::vector<collective::Method> methods;  // by group
  const codec::Codec* codec = nullptr;
  bool keepsRest = true;     // adds what the codec takes away to the next gradients
  size_t atOnce = 1;         // reductions under way
  size_t delay = 0;          // in steps, from a gradient to its use
  uint64_t warmUp = 0;       // steps at the beginning without it
  uint64_t replanSteps = 0;  // from one boundary to the next (replanner.h); 0: never
  bool byPriority = false;   // gradients that the next forward pass needs first overtake the rest
};

Result<ReductionSettings> settingsOf(const plan::PlanSpec& spec);

// Change what chooseReduction() (reduction.h) has written into the spec: for algorithms whose
// results are late, whose groups change, or whose groups overtake. REQUIRES: it has been called.
void setDelay(plan::PlanSpec& spec, size_t delay, uint64_t warmUp);
void setReplanSteps(plan::PlanSpec& spec, uint64_t steps);
void setByPriority(plan::PlanSpec& spec);  // all groups at once

// Replaces the groups; each is of one type. The method of each follows from --collective, and for
// `auto` from what a message of its size costs.
Status setGroups(const base::Config& config, std::span<const timing::Group> groups,
                 plan::PlanSpec& spec);

// "0-2,3-3": groups of tensors as the plan holds them.
std::string groupsText(std::span<const timing::Group> groups);
Result<std::vector<timing::Group>> parseGroups(const std::string& text, size_t tensors);

}  // namespace sluice::algorithms
