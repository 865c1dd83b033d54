// Keeps the part of this rank's gradients that compression takes away, and adds it to the next
// gradients: nothing is lost, only late. Each object serves one buffer that is compressed in every
// step. Belongs to the owner of the buffer; no threads.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/data/codec/codec.h>

namespace sluice::codec {

class ErrorFeedback final {
 public:
  // REQUIRES: the codec outlives this.
  ErrorFeedback(const Codec& codec, size_t elements) : codec_(codec), owed_(elements) {}

  // Adds the owed part to the gradients, and leaves in them the values that the codec can carry
  // without loss. The rest is owed to the next call. An element that is not finite carries nothing
  // over. REQUIRES: as many f32 elements as the object was made for.
  void apply(std::span<std::byte> gradients);

  // Read and put back the debt, for checkpoints.
  std::span<const float> owed() const { return owed_; }
  Status restore(std::span<const float> owed);

 private:
  // Applies to a part of the elements. REQUIRES: it begins at a block of the codec.
  void applyTo(std::span<float> owed, std::span<std::byte> gradients);

  const Codec& codec_;
  std::vector<float> owed_;
  std::vector<std::byte> encoded_;  // scratch
};

}  // namespace sluice::codec
