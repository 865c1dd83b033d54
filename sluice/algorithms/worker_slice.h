// One slice at a worker, as the engines whose workers make their own steps hand it to an algorithm.
#pragma once

#include <cstddef>
#include <span>

#include <sluice/data/plan/plan.h>

namespace sluice::algorithms {

// One slice at a worker, at the end of a step. The server's answer, if there was one, is in
// `parameters`.
struct WorkerSlice {
  const plan::Slice& slice;
  Step step;
  std::span<const std::byte> gradient;  // empty if this worker had no gradient
  std::span<std::byte> parameters;
  std::span<const double> values;  // hyperparameters of this step
};

}  // namespace sluice::algorithms
