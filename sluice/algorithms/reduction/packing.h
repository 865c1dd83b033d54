// The buffer in which the gradients of a group of tensors travel together. At its end there is one
// more element for each tensor, which says whether any rank had a gradient for it: it is 1 where a
// rank has one, so its mean is 0 only if nobody has. Belongs to its strategy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <sluice/data/codec/error_feedback.h>
#include <sluice/data/plan/model.h>
#include <sluice/data/timing/merging.h>

namespace sluice::algorithms {

class Packing final {
 public:
  // With `isMean` the mean itself is wanted, in the tensors' own type. Otherwise an optimizer is to
  // have it unrounded, so 16-bit gradients travel as f32. REQUIRES: all tensors are of one type
  Packing(std::span<const Tensor> tensors, bool isMean, const codec::Codec* codec);
  Packing(Packing&&) = default;  // a copy would share the bytes
  Packing& operator=(Packing&&) = default;

  // Returns the type in which gradients of type `own` travel.
  static DType wireTypeOf(DType own, bool isMean);

  DType dtype() const { return wire_; }
  std::span<std::byte> data() { return *data_; }
  std::span<const std::byte> data() const { return *data_; }
  // Keeps the bytes of data() where they are.
  std::shared_ptr<const void> owner() const { return data_; }

  // put() fills the tensor's part, by its place in the group. A gradient that was written to its
  // part is not copied.
  std::span<std::byte> part(size_t place) { return data().subspan(begins_[place], sizes_[place]); }
  void put(size_t place, std::span<const std::byte> gradient);
  void putNothing(size_t place);

  // Completes the packing: from now on data() is to be reduced. With a codec, `feedback` adds what
  // earlier steps owe, and remembers what this step owes. REQUIRES: it is of owedElements().
  void finish(codec::ErrorFeedback* feedback);

  // The elements that an error feedback covers: all but the flags. Those of a tensor begin at
  // firstOf(place).
  size_t owedElements() const { return flags_ / sizeOf(wire_); }
  size_t firstOf(size_t place) const { return begins_[place] / sizeOf(wire_); }

  // The reduction leaves its result in data(). isEmpty() is true iff no rank had a gradient of the
  // tensor; its part has no meaning then.
  bool isEmpty(size_t place) const;
  std::span<const std::byte> get(size_t place) const {
    return data().subspan(begins_[place], sizes_[place]);
  }

  // Puts back a mean that get() once gave. REQUIRES: it is of the same size.
  void putMean(size_t place, std::span<const std::byte> mean);

 private:
  void setFlag(size_t place, float value);

  DType own_;                   // the tensors'
  DType wire_;                  // on its way
  std::vector<size_t> begins_;  // in bytes
  std::vector<size_t> sizes_;
  size_t flags_ = 0;  // their beginnings, in bytes
  std::shared_ptr<std::vector<std::byte>> data_ = std::make_shared<std::vector<std::byte>>();
};

// Cuts groups where the type changes, so that the tensors of each are of one type.
std::vector<timing::Group> splitByType(const Model& model, std::span<const timing::Group> groups);

}  // namespace sluice::algorithms
