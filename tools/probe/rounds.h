// The order in which pairs of ranks are measured: rounds of pairs that share no rank, so that a
// rank sends to one rank, or receives from one, at any time. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::probe {

// Returns the rounds that are measured, out of all in which every pair meets once. If there are
// more than `most`, they are spread evenly over all of them.
std::vector<uint32_t> chooseRounds(uint32_t ranks, uint32_t most);

// Returns the rank that `rank` is paired with in this round; empty if it rests.
std::optional<uint32_t> partnerOf(uint32_t rank, uint32_t round, uint32_t ranks);

}  // namespace sluice::probe
