// The buffer in which the gradients of a group of tensors travel together. At its end there is one
// more element for each tensor, which says whether any rank had a gradient for it: it is 1 where a
// rank has one, so its mean is 0 only if nobody has. Belongs to its strategy.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/codec/error_feedback.h>
#include <sluice/plan/model.h>
#include <sluice/timing/merging.h>

namespace sluice::strategy {

class Packing final {
 public:
  // `isMean`: the mean itself is wanted, in the tensors' own type. Else it is for an optimizer,
  // which is to have it unrounded, so 16-bit gradients travel as f32. REQUIRES: all tensors are of
  // one type
  Packing(std::span<const Tensor> tensors, bool isMean, const codec::Codec* codec);

  DType dtype() const { return wire_; }
  std::span<std::byte> data() { return data_; }
  std::span<const std::byte> data() const { return data_; }

  // By the tensor's place in the group.
  void put(size_t place, std::span<const std::byte> gradient);
  void putNothing(size_t place);

  // All are there: from now on data() is what is to be reduced. With a codec, `feedback` adds what
  // earlier steps owe, and remembers what this one does. REQUIRES: it is of owedElements().
  void finish(codec::ErrorFeedback* feedback);

  // Of the feedback: everything but the flags; a tensor's begin there at firstOf(place).
  size_t owedElements() const { return flags_ / sizeOf(wire_); }
  size_t firstOf(size_t place) const { return begins_[place] / sizeOf(wire_); }

  // After the reduction.
  bool isEmpty(size_t place) const;
  std::span<const std::byte> get(size_t place) const { return part(place); }

  // A mean that get() once gave. REQUIRES: it is of the same size.
  void putMean(size_t place, std::span<const std::byte> mean);

 private:
  std::span<std::byte> part(size_t place) {
    return std::span(data_).subspan(begins_[place], sizes_[place]);
  }
  std::span<const std::byte> part(size_t place) const {
    return std::span(data_).subspan(begins_[place], sizes_[place]);
  }
  void setFlag(size_t place, float value);

  DType own_;                   // the tensors'
  DType wire_;                  // on its way
  std::vector<size_t> begins_;  // in bytes
  std::vector<size_t> sizes_;
  size_t flags_ = 0;  // their beginnings, in bytes
  std::vector<std::byte> data_;
};

// Groups whose tensors are each of one type: cut where it changes.
std::vector<timing::Group> splitByType(const Model& model, std::span<const timing::Group> groups);

}  // namespace sluice::strategy
