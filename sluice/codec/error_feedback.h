// What compression has taken from this rank's gradients, added to the next ones: nothing is lost,
// only late. One object for one buffer that is compressed in every step. Belongs to whoever owns
// the buffer; no threads.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/codec/codec.h>

namespace sluice::codec {

class ErrorFeedback final {
 public:
  // REQUIRES: the codec outlives this.
  ErrorFeedback(const Codec& codec, size_t elements) : codec_(codec), owed_(elements) {}

  // Adds what is owed to the gradients, and leaves of them what the codec can carry without loss;
  // the rest is owed to the next call. An element that is not finite carries nothing over.
  // REQUIRES: as many f32 elements as it was made for.
  void apply(std::span<std::byte> gradients);

  // For checkpoints.
  std::span<const float> owed() const { return owed_; }
  Status restore(std::span<const float> owed);

 private:
  // A part that begins at a block.
  void applyTo(std::span<float> owed, std::span<std::byte> gradients);

  const Codec& codec_;
  std::vector<float> owed_;
  std::vector<std::byte> encoded_;  // scratch
};

}  // namespace sluice::codec
