// What merging goes by, corrected by what training has shown. Pure functions; words as in
// merging.h.
//
// A step is seen from its first gradient on: how long the last layer's backward and the forward
// pass take is not seen, and is taken to have changed as the rest of backward has.
#pragma once

#include <span>
#include <vector>

#include <sluice/timing/merging.h>

namespace sluice::timing {

// Of one step, or medians of several; seconds.
struct StepTimes {
  std::vector<double> ready;    // by layer: from the step's first gradient to this layer's
  std::vector<double> reduced;  // by group: how long its reduction took; 0: not known

  friend bool operator==(const StepTimes&, const StepTimes&) = default;
};

// What all ranks together make of it: a layer is ready when it is on the slowest rank, and a
// reduction takes as long as on the rank that began it last and so waited for nobody. REQUIRES: one
// at least, all of one shape
StepTimes combine(std::span<const StepTimes> ofRanks);

// `known`, with everything that was measured in the place of what was known. One reduction was
// under way at a time. REQUIRES: as many layers and groups
Costs correct(const Costs& known, const StepTimes& measured, std::span<const Group> groups);

}  // namespace sluice::timing
