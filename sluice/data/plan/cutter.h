// Collects slices in order. Only the placements (slicing.cc, sharded.cc) use it.
#pragma once

#include <span>
#include <vector>

#include <sluice/data/plan/slicing.h>

namespace sluice::plan {

class Cutter final {
 public:
  explicit Cutter(const std::vector<Rank>& servers) : servers_(servers) {}

  // Gives the next `count` elements of the tensor to the server at this position.
  void add(uint64_t count, uint32_t serverPosition, uint32_t chunk) {
    slices_.push_back({.id = SliceId{static_cast<uint32_t>(slices_.size())},
                       .tensor = tensor_,
                       .chunk = chunk,
                       .priority = index(tensor_),
                       .offset = offset_,
                       .count = count,
                       .server = servers_[serverPosition]});
    offset_ += count;
  }

  // Moves on to the next tensor, which will have `slices` slices; fails if the plan would then have
  // more than kMaxSlices.
  Status begin(TensorId tensor, uint64_t slices);

  uint32_t servers() const { return static_cast<uint32_t>(servers_.size()); }
  std::vector<Slice> take() && { return std::move(slices_); }

 private:
  std::span<const Rank> servers_;
  std::vector<Slice> slices_;
  TensorId tensor_{};
  uint64_t offset_ = 0;
};

constexpr uint64_t ceilDivide(uint64_t a, uint64_t b) {
  return a / b + (a % b == 0 ? 0 : 1);
}

// Returns the size of part i when `total` is split into `parts` that differ by at most one.
constexpr uint64_t evenPart(uint64_t total, uint64_t parts, uint64_t i) {
  return total / parts + (i < total % parts ? 1 : 0);
}

Status cutSharded(const Model& model, const Slicing& slicing, Cutter& cutter);

}  // namespace sluice::plan
