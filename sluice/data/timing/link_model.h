// Plays one iteration over one link, event by event. It checks the formulas of bounds.h, and shows
// how far slices that cannot be recalled fall short of them. Pure functions; words as in bounds.h.
#pragma once

#include <cstddef>
#include <span>

#include <sluice/data/timing/bounds.h>

namespace sluice::timing {

// Plays strict priority on a link that can drop a message for a more urgent one at any moment and
// lose nothing.
double simulatePreemptive(std::span<const Layer> layers, const WireCost& wire);

struct SlicedLink {
  double sliceBytes = 200'000;
  size_t beyondRecall =
      1;  // slices that the network holds at once; it sends them in the order it got them
  bool byPriority = true;  // or in the order of generation
};
double simulateSliced(std::span<const Layer> layers, const WireCost& wire, const SlicedLink& link);

}  // namespace sluice::timing
