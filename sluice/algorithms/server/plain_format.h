// Slices as they are, to servers and back: a worker's gradient, the direction of its step or its
// parameters go to a desk of the centre (shard/centre.h), and the answer from there to the worker's
// parameters. Belongs to the fabric's loop.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <sluice/algorithms/server/answering.h>
#include <sluice/algorithms/server/local_optimizer.h>
#include <sluice/data/shard/centre.h>

namespace sluice::algorithms {

class PlainFormat final : public PayloadFormat {
 public:
  enum class Part : uint8_t {
    kGradient,
    kDirection,  // the gradient with SGD's decay and momentum, which the worker keeps
    kParameters,
  };

  // REQUIRES: checkUpdate(context); SGD for kDirection
  PlainFormat(const Context& context, Part part);

  // Returns the worker's last part of the slice. REQUIRES: parts are directions.
  std::span<const std::byte> direction(SliceId slice) const { return directions_[index(slice)]; }
  // Returns the momentum that a worker keeps; null if servers keep it.
  OwnState* own() { return momentum_ ? &*momentum_ : nullptr; }

  shard::Centre& centre() { return centre_; }
  const shard::Centre& centre() const { return centre_; }

  DType dtypeOf(const plan::Slice& slice) const override {
    return plan_.model()[slice.tensor].dtype;
  }
  std::optional<std::span<const std::byte>> part(const WorkerSlice& worker) override;
  Buffer bufferForAnswer(const plan::Slice& slice, uint64_t bytes) override;
  Buffer bufferForPart(const plan::Slice& slice, Rank worker, uint64_t bytes) override;
  std::span<const std::byte> answer(const plan::Slice& slice, Rank worker) const override;
  std::optional<uint64_t> answerBytes(const plan::Slice& slice) const override {
    return plan_.bytesOf(slice);
  }

 private:
  const plan::Plan& plan_;
  const std::span<const TensorMemory> memory_;
  const Part part_;
  shard::Centre centre_;
  // Used with kDirection only.
  std::optional<LocalOptimizer> momentum_;
  std::vector<std::vector<std::byte>> directions_;  // by SliceId
};

}  // namespace sluice::algorithms
