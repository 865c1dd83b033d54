// What the algorithms that reduce agree on besides the plan's slices, as a value and as the plan's settings.
// Pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <sluice/codec/codec.h>
#include <sluice/collective/method.h>
#include <sluice/plan/merging.h>
#include <sluice/plan/plan.h>

namespace sluice::strategy {

struct ReductionSettings {
  std::vector<plan::Group> groups;
  collective::Method method{};
  const codec::Codec* codec = nullptr;
  size_t atOnce = 1;    // reductions under way
  size_t delay = 0;     // in steps, from a gradient to its use
  uint64_t warmUp = 0;  // steps at the beginning without it
};

Result<ReductionSettings> settingsOf(const plan::PlanSpec& spec);

// Adds the delay. REQUIRES: the spec has the other settings (chooseReduction() in reduction.h).
void setDelay(plan::PlanSpec& spec, size_t delay, uint64_t warmUp);

// "0-2,3-3": groups of tensors as the plan holds them.
std::string groupsText(std::span<const plan::Group> groups);
Result<std::vector<plan::Group>> parseGroups(const std::string& text, size_t tensors);

}  // namespace sluice::strategy
