#include <sluice/data/staging/pieces.h>

#include <algorithm>

namespace sluice::staging {

std::vector<Piece> cutPieces(const plan::Plan& plan, TensorId tensor, size_t atMost) {
  const Tensor& described = plan.model()[tensor];
  const size_t element = sizeOf(described.dtype);
  const size_t bytes = described.bytes();
  const size_t limit = std::max(atMost / element, size_t{1}) * element;
  std::vector<Piece> pieces;
  auto slice = plan.slicesOf(tensor).begin();
  const auto end = plan.slicesOf(tensor).end();
  for (size_t begin = 0; begin < bytes; begin = pieces.back().end()) {
    const size_t furthest = std::min(begin + limit, bytes);
    size_t border = begin;  // the last end of a slice that is near enough
    for (; slice != end && (slice->offset + slice->count) * element <= furthest; ++slice)
      border = (slice->offset + slice->count) * element;
    // A piece that ends with a slice lets that slice go on to the network at once. But a border
    // that is too near makes a copy that is all start and no bytes, so then the piece ends
    // within a slice.
    const bool isLongEnough = border - begin >= limit / 2 || border == bytes;
    pieces.push_back({begin, (isLongEnough ? border : furthest) - begin});
  }
  return pieces;
}

}  // namespace sluice::staging
