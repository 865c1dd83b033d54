// The state that a rank which all-reduces keeps between steps, for a checkpoint: gradients
// that are not applied yet, what a codec owes, and the optimizer's state where there is one here. A
// plain value, by the names of tensors, so that it fits whatever the groups are. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::algorithms {

struct TensorState {
  std::string name{};
  std::vector<std::optional<std::vector<std::byte>>>
      delayed{};                       // means, the oldest first; empty if nobody had a gradient
  std::vector<std::byte> owed{};       // to the codec, f32; empty without a codec
  std::vector<std::byte> optimizer{};  // optimizer::OptimizerState; empty: it runs elsewhere

  friend bool operator==(const TensorState&, const TensorState&) = default;
};

struct ReductionState {
  uint32_t rank = 0;  // the debt of a codec is each rank's own; all else is the same on all of them
  uint64_t steps = 0;
  uint32_t rounds = 0;  // of delayed means, the same for each tensor
  std::vector<TensorState> tensors{};

  std::vector<std::byte> toBytes() const;
  static Result<ReductionState> fromBytes(
      std::span<const std::byte> bytes);  // believes nothing it reads

  friend bool operator==(const ReductionState&, const ReductionState&) = default;
};

}  // namespace sluice::algorithms
