// A worker's side of deep gradient compression: what it sends of each part of its gradients, and
// what it keeps back. A part is a tensor or a slice of one. Belongs to the fabric's loop.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/dgc/settings.h>
#include <sluice/algorithms/server/centre_state.h>
#include <sluice/data/codec/dgc.h>

namespace sluice::algorithms {

class Compressor final : public OwnState {
 public:
  struct Part {
    TensorId tensor{};
    uint64_t offset = 0;  // first element in the tensor
    uint64_t count = 0;
  };
  static std::vector<Part> tensorsOf(const plan::Plan& plan);
  static std::vector<Part> slicesOf(const plan::Plan& plan);

  // `parts` cover every tensor once. REQUIRES: settings of settingsOfDgc(context)
  Compressor(const Context& context, const DgcSettings& settings, std::span<const Part> parts);

  // Returns the message for this part in this step (codec/sparse.h), with SGD's `values` of the
  // step: weight decay is added to the gradient; a missing gradient counts as zeros. Clipping is by
  // the whole tensor's norm, as it is when the first of its parts is compressed.
  std::vector<std::byte> compress(size_t part, Step step, bool hasGradient,
                                  std::span<const double> values);

  // True iff gradients are clipped: then compress() reads the whole tensor of a part.
  bool clips() const { return settings_.clip != 0; }

  // Save and restore the state: the number of steps, and the elements that are kept back.
  void save(TensorId tensor, SavedTensor& saved) const override;
  void restore(TensorId tensor, const SavedTensor* saved) override;
  uint64_t steps() const override {
    return static_cast<uint64_t>(static_cast<int64_t>(stepsHere_) + ahead_);
  }
  void setSteps(uint64_t steps) override {
    ahead_ = static_cast<int64_t>(steps) - static_cast<int64_t>(stepsHere_);
  }

 private:
  struct Compressed {
    Part part;
    codec::Dgc dgc;
  };
  struct Clip {
    Step step{};
    bool isKnown = false;
    float factor = 1;
  };

  void read(const Part& part, bool hasGradient, double decay, std::vector<float>& gradient) const;
  float clipFactorOf(TensorId tensor, Step step, bool hasGradient, double decay);

  const plan::Plan& plan_;
  const std::span<const TensorMemory> memory_;
  const DgcSettings settings_;
  uint64_t stepsHere_ = 0;
  int64_t ahead_ = 0;  // by how many steps training is further than this session
  std::vector<Compressed> parts_;
  std::vector<Clip> clips_;  // by TensorId
  // Scratch.
  std::vector<float> gradient_;
  std::vector<float> whole_;
};

}  // namespace sluice::algorithms
