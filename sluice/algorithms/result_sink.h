// Hears of results as they come, slice by slice: whoever copies them on from host memory to a
// device begins with the first slice, and does not wait for a tensor's gate.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <sluice/base/ids.h>
#include <sluice/data/plan/slicing.h>

namespace sluice::algorithms {

// The result of a tensor in host memory.
struct ResultBytes {
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};  // keeps the bytes where they are; null: they stay anyway
};

// The result of one slice, which is in its final place.
struct SliceResult {
  TensorId tensor{};
  SliceId slice{};
  Step step{};           // as the tensor's gate counts
  size_t firstByte = 0;  // in the tensor's result
  size_t bytes = 0;
  Rank from{};          // the rank that the result came from: the peer of its stages
  ResultBytes whole{};  // the tensor's result; the slice's bytes of it are here
};

// Is called on the fabric's loop, and must be quick. For every step of a tensor whose gate opens,
// either onResult() was called before, once for each of its slices, in any order, or onNoResult()
// was. A step that ends with an error may have neither, or a part of its results: Trainer::wait()
// says why.
class ResultSink {
 public:
  virtual ~ResultSink() = default;

  // The slice has its sum or its new parameters; the bytes do not change before the tensor's next
  // gradient is handed over. The slice has entered Stage::kStageIn. The sink reports
  // Stage::kApplied, with `from` as the peer, when the result is where training reads it.
  virtual void onResult(const SliceResult& result) = 0;

  // Reports that the step has no result: no worker had a gradient, or the step was dropped. The
  // gate opens empty.
  virtual void onNoResult(TensorId tensor, Step step) = 0;
};

// Places for results beside the gradients that they replace. Is called on the fabric's loop.
class ResultPlaces {
 public:
  virtual ~ResultPlaces() = default;

  // Returns the place for the result of a slice, which the sink hears of when it is whole.
  virtual std::span<std::byte> placeFor(const plan::Slice& slice, Step step) = 0;
};

}  // namespace sluice::algorithms
