// The memory of the servers' optimizer about slices, for a checkpoint: a plain value, keyed by the
// names of tensors. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/data/optimizer/optimizer_state.h>

namespace sluice::shard {

struct ServedState final {
  std::string tensor;
  uint64_t offset;  // the slice's first element in its tensor
  optimizer::OptimizerState state;

  friend bool operator==(const ServedState&, const ServedState&) = default;
};

std::vector<std::byte> toBytes(std::span<const ServedState> states);
Result<std::vector<ServedState>> servedStatesFromBytes(
    std::span<const std::byte> bytes);  // believes nothing

}  // namespace sluice::shard
