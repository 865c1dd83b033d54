// One line in the list of algorithms (registry.cc): how it is called, how it is made, which options
// it takes, and what others have to know of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/strategy.h>
#include <sluice/base/config.h>
#include <sluice/base/option.h>
#include <sluice/base/status.h>
#include <sluice/data/plan/plan.h>

namespace sluice::algorithms {

struct Algorithm {
  std::string_view name;
  std::string_view help;
  // Fills in how the algorithm slices, and all else that ranks must agree on.
  Status (*choose)(const base::Config& config, plan::PlanSpec& spec);
  Result<std::unique_ptr<Strategy>> (*make)(const Context& context);
  std::string_view alias{};                        // another name of the algorithm; may be empty
  std::span<const base::Option* const> options{};  // that it takes besides the general ones
  const base::Option* argument = nullptr;          // the option that "NAME:VALUE" sets
  // Says what it cost in accuracy where that was measured; empty if it costs nothing.
  std::string_view accuracy{};

  // Traits.
  bool keepsRanksEqual = true;  // all ranks have the same parameters after every step, bit for bit
  bool takesProcessGroup = false;     // somebody else's engine can do the all-reduces
  bool delaysResults = false;         // a step has the result of an earlier one
  bool readsParameters = false;       // reads the worker's parameters while their gate is closed
  bool checkpointHoldsModel = false;  // the session's state holds the servers' model, too
  bool sendsOldestFirst = false;      // in backward's order; false: the most urgent gradient first

  bool takes(const base::Option& option) const;
};

// Returns the options of several lists as one list.
template <size_t... kCounts>
constexpr auto joined(const std::array<const base::Option*, kCounts>&... lists) {
  std::array<const base::Option*, (kCounts + ...)> all{};
  auto end = all.begin();
  ((end = std::ranges::copy(lists, end).out), ...);
  return all;
}

}  // namespace sluice::algorithms
