// Chooses the neighbouring layers to send as one message when every message has a start-up cost.
// Pure functions; words as in bounds.h; there must be at least one layer. A *group* is a run of
// layers sent together: it is ready when its first layer is (backward reaches that layer last).
#pragma once

#include <span>
#include <vector>

#include <sluice/data/timing/bounds.h>

namespace sluice::timing {

struct Group {
  size_t first = 0;  // layers, both inclusive, from 0
  size_t last = 0;
  friend bool operator==(const Group&, const Group&) = default;
};

// The costs that merging goes by.
struct Costs {
  std::vector<Layer> layers;
  WireCost wire;
};

struct Merging {
  std::vector<Group> groups;  // in forward order; together they hold all layers
  double seconds = 0;         // of an iteration
};

// Returns the time of an iteration in which groups are sent as they become ready, one after the
// other, and the next forward starts after the last. Groups of one layer each are WFBP, one group
// is SyncEASGD.
double iterationSeconds(std::span<const Layer> layers, const WireCost& wire,
                        std::span<const Group> groups);

// Returns the time of an iteration in which groups are sent by priority, can be interrupted, and
// each opens its layers at once: max(B+F, max_g r_lo(g) + q_lo(g) + sum_{h<=g} (a + b*P_h)).
double prioritySeconds(std::span<const Layer> layers, const WireCost& wire,
                       std::span<const Group> groups);

// MG-WFBP, exactly: E[L+1] = 0, E[j] = min_{k>j} max(E[k], r_j) + a + b*sum_{l=j..k-1} p_l;
// iteration F + E[1]. O(L^2).
Merging mergeExactly(std::span<const Layer> layers, const WireCost& wire);

// MG-WFBP as published: Algorithm 1 with its printing errors repaired. It is not optimal (Theorem 1
// does not hold), and kept to compare with. O(L^2).
Merging mergeByAlgorithm1(std::span<const Layer> layers, const WireCost& wire);

// "MG-P3": the merging that makes prioritySeconds least. Binary search on the answer; for each, the
// fewest groups that reach it. O(L^2 log).
Merging mergeWithPriority(std::span<const Layer> layers, const WireCost& wire);

}  // namespace sluice::timing
