// The limits of a model (sluice/model.h). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sluice/model.h>

namespace sluice::plan {

// The limits keep every sum of sizes inside 64 bits and a plan that came over
// the network from asking for absurd memory.
inline constexpr size_t kMaxTensors = 1'000'000;
inline constexpr size_t kMaxNameBytes = 4096;
inline constexpr uint64_t kMaxTensorElements = uint64_t{1} << 40;

// Ok iff there is at least one tensor, no tensor is empty, and all are within the limits.
Status check(const Model& model);

}  // namespace sluice::plan
