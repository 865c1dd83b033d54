// A slice as its server holds it, on its way to a worker that makes a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/data/optimizer/optimizer_state.h>

namespace sluice::algorithms {

// `optimizer` may be null: the server makes plain steps.
std::vector<std::byte> packHeldSlice(std::span<const std::byte> parameters,
                                     const optimizer::OptimizerState* optimizer);

struct HeldSlice final {
  std::span<const std::byte> parameters;  // in the bytes that were read
  std::optional<optimizer::OptimizerState> optimizer;
};
// Reads a packed slice, and believes nothing in it.
Result<HeldSlice> readHeldSlice(std::span<const std::byte> bytes);

// Returns a bound for the packed bytes of a slice of so many elements.
uint64_t longestHeldSlice(uint64_t elements);

}  // namespace sluice::algorithms
