// Chooses the neighbouring tensors that mgwfbp merges, and says when it should merge others. Pure
// functions, any thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/data/plan/model.h>
#include <sluice/data/timing/merging.h>

namespace sluice::algorithms {

// Merges tensors as --merge says.
std::vector<timing::Group> mergeTensors(const base::Config& config, const timing::Costs& costs);

struct Regrouping {
  std::vector<timing::Group> groups;
  double secondsBefore = 0;  // of an iteration, with the groups there were
  double seconds = 0;
};

// Returns other groups, if they should shorten an iteration by more than the error of measuring.
// Every group is of one type. REQUIRES: the costs are those of the model's tensors
std::optional<Regrouping> regroup(const base::Config& config, const timing::Costs& costs,
                                  const Model& model, std::span<const timing::Group> groups);

}  // namespace sluice::algorithms
