// Cuts tensors into the pieces that are copied from and to a device. The start of a copy costs a
// device several microseconds, so a piece is larger than most slices.
#pragma once

#include <cstddef>
#include <vector>

#include <sluice/data/plan/plan.h>

namespace sluice::staging {

struct Piece {
  size_t begin = 0;  // byte in its tensor
  size_t count = 0;  // bytes

  size_t end() const { return begin + count; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

// Returns the pieces of one tensor, in order. A piece has at most `atMost` bytes, and all but the
// last have at least half as many. A piece ends where a slice ends, unless a slice is too long.
std::vector<Piece> cutPieces(const plan::Plan& plan, TensorId tensor, size_t atMost);

}  // namespace sluice::staging
