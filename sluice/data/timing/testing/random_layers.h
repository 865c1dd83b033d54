// Random layer tables for the tests of bounds and merging: seeded, so that a failure comes back.
#pragma once

#include <random>
#include <vector>

#include <sluice/data/timing/bounds.h>

namespace sluice::timing::testing {

struct Instance {
  std::vector<Layer> layers;
  WireCost wire;
};

inline Instance anyInstance(std::mt19937_64& random, size_t mostLayers) {
  const auto upTo = [&](double most) { return std::uniform_real_distribution<>(0, most)(random); };
  // The slow part (compute, start-up or bytes) changes from one instance to the next.
  const double compute = upTo(4);
  Instance instance{{}, {.start = upTo(3), .perByte = upTo(2)}};
  const size_t layers = 1 + random() % mostLayers;
  for (size_t l = 0; l < layers; ++l)
    instance.layers.push_back({upTo(compute), upTo(2 * compute), upTo(3)});
  return instance;
}

}  // namespace sluice::timing::testing
