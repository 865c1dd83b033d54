// Numbers that look random and are the same on every machine and in every run: splitmix64, by
// Steele, Lea and Flood. The standard leaves the results of its distributions open.
#pragma once

#include <cstdint>

namespace sluice::base {

// Returns number `i` of the sequence that `seed` begins.
constexpr uint64_t splitmix64(uint64_t seed, uint64_t i = 0) {
  uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

// Returns a number from 0 to 1, without 1: the upper 53 bits, which a double holds exactly.
constexpr double fromZeroToOne(uint64_t bits) {
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

}  // namespace sluice::base
