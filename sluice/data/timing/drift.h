// Corrects the costs that merging goes by with the times that training has shown. Pure functions;
// words as in merging.h.
//
// A step is seen from its first gradient on. The times of the last layer's backward and of the
// forward pass are not seen, and are taken to have changed as the rest of backward has.
#pragma once

#include <span>
#include <vector>

#include <sluice/data/timing/merging.h>

namespace sluice::timing {

// The times of one step, or medians of several steps, in seconds.
struct StepTimes {
  std::vector<double> ready;    // by layer: from the step's first gradient to this layer's
  std::vector<double> reduced;  // by group: how long its reduction took; 0: not known

  friend bool operator==(const StepTimes&, const StepTimes&) = default;
};

// Combines the times of all ranks: a layer is ready when it is ready on the slowest rank, and a
// reduction takes as long as on the rank that began it last and so waited for nobody. REQUIRES: at
// least one rank, all of one shape
StepTimes combine(std::span<const StepTimes> ofRanks);

// Returns `known` with every measured value in the place of the known one. One reduction was under
// way at a time. REQUIRES: `measured` has as many layers as `known`, and as many groups as `groups`
Costs correct(const Costs& known, const StepTimes& measured, std::span<const Group> groups);

}  // namespace sluice::timing
