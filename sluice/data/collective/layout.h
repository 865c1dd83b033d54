// The places of a collective's parts in its data, and the cut of the parts into strips. Strips are
// independent slices of the same collective that run side by side, so that one is summed while
// another travels. Pure functions, any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sluice/data/codec/codec.h>
#include <sluice/data/collective/collective.h>
#include <sluice/data/collective/schedule.h>

namespace sluice::collective {

// Returns piece `i` of `pieces` nearly equal ones; each begins at a multiple of a codec's block.
inline ElementRange pieceOf(uint64_t elements, uint64_t pieces, uint64_t i) {
  const uint64_t blocks = (elements + codec::kBlock - 1) / codec::kBlock;
  const auto begin = [&](uint64_t piece) {
    return std::min(elements, blocks * piece / pieces * codec::kBlock);
  };
  return {begin(i), begin(i + 1) - begin(i)};
}

class PieceLayout final {
 public:
  enum class Order {
    kStripsOfParts,  // strips follow each other, each has its N parts
    kPartsOfStrips,  // parts follow each other, as partOf() says, each has its strips
  };
  PieceLayout(Order order, uint32_t world, uint64_t elements, uint32_t strips)
      : order_(order), world_(world), elements_(elements), strips_(strips) {}

  uint32_t strips() const { return strips_; }

  // REQUIRES: one part only, if parts come before strips.
  ElementRange of(uint32_t strip, const Parts& parts) const {
    if (order_ == Order::kPartsOfStrips) {
      const ElementRange part = pieceOf(elements_, world_, parts.first);
      const ElementRange piece = pieceOf(part.count, strips_, strip);
      return {part.first + piece.first, piece.count};
    }
    const ElementRange whole = pieceOf(elements_, strips_, strip);
    const ElementRange first = pieceOf(whole.count, world_, parts.first);
    const ElementRange last = pieceOf(whole.count, world_, parts.first + parts.count - 1);
    return {whole.first + first.first, last.first + last.count - first.first};
  }

 private:
  const Order order_;
  const uint32_t world_;
  const uint64_t elements_;
  const uint32_t strips_;
};

}  // namespace sluice::collective
