// An optimizer's memory of one slice: the number of its steps, and its buffers (momentum,
// averages), one number per parameter each, in the accumulator's type. Belongs to the owner of the
// slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/model.h>

namespace sluice::optimizer {

class OptimizerState final {
 public:
  // Makes the state of a slice that has not been stepped yet. REQUIRES:
  // kernel::checkArithmetic(dtype)
  OptimizerState(std::string_view optimizer, DType dtype, size_t elements);

  const std::string& optimizer() const { return optimizer_; }  // its name: a state fits no other
  DType dtype() const { return dtype_; }                       // of the parameters
  size_t elements() const { return elements_; }
  uint64_t steps() const { return steps_; }
  void countStep() { ++steps_; }
  void setSteps(uint64_t steps) { steps_ = steps; }  // of a state that comes from elsewhere

  // Buffers appear when they are first asked for, filled with zeros: plain SGD needs no memory at
  // all.
  bool hasBuffer(size_t index) const { return index < buffers_.size() && buffers_[index].used; }
  std::span<std::byte> buffer(size_t index);
  std::span<const std::byte> buffer(size_t index) const;  // REQUIRES: hasBuffer(index)
  size_t bufferCount() const {
    return buffers_.size();
  }  // used or not: one more than the highest index
  size_t bufferBytes() const;  // memory held by all buffers

  // For checkpoints. fromBytes() believes nothing it reads.
  size_t savedBytes() const;  // toBytes() returns no more bytes
  std::vector<std::byte> toBytes() const;
  static Result<OptimizerState> fromBytes(std::span<const std::byte> bytes);

  friend bool operator==(const OptimizerState&, const OptimizerState&) = default;

 private:
  struct Buffer final {
    bool used = false;  // not the same as empty: a slice may have no elements
    std::vector<std::byte> bytes;
    friend bool operator==(const Buffer&, const Buffer&) = default;
  };

  size_t bytesPerBuffer() const;

  std::string optimizer_;
  DType dtype_;
  size_t elements_;
  uint64_t steps_ = 0;
  std::vector<Buffer> buffers_;
};

}  // namespace sluice::optimizer
