// Reproducible chance: the same seed draws the same numbers on every machine.
#pragma once

#include <cstdint>

#include <sluice/base/random.h>

namespace sluice::sim {

class Random final {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}

  // From 0 to 1, without 1.
  double uniform() { return base::fromZeroToOne(base::splitmix64(seed_, drawn_++)); }

 private:
  const uint64_t seed_;
  uint64_t drawn_ = 0;
};

}  // namespace sluice::sim
