// The order in which a rank sends. The layer's place in the forward pass decides first
// (Slice::priority); among messages of one layer the *turn* decides, lower first. Pure functions of
// plan and rank.
//
// With `sharded` and `layers` the destinations are rotated: the sender at position i begins with destination i,
// then i+1 and so on around, so that at any time every destination hears from about one sender. If
// neighbouring ranks share an uplink (hostsPerRack > 1), the sender strides over the racks: first
// one host of each rack, then the next of each. The other placements keep the order of the slices,
// the same on all ranks, as published.
#pragma once

#include <cstdint>

#include <sluice/data/plan/plan.h>

namespace sluice::plan {

// Returns the turn at which the sender at position `from` visits destination `to` of `count`; 0 is
// first. The turns of one sender are a permutation.
uint32_t visit(uint32_t from, uint32_t to, uint32_t count, uint32_t hostsPerRack);

// Returns the turn of `slice` among the pushes of its layer by `worker`. REQUIRES: `worker` is a
// worker.
uint64_t pushTurn(const Plan& plan, const Slice& slice, Rank worker);

// Returns the turn of the publication of `slice` to `worker` among the publications of its layer by
// its server.
uint64_t publishTurn(const Plan& plan, const Slice& slice, Rank worker);

}  // namespace sluice::plan
