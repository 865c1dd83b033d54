// The optimizer's step where workers make it themselves, each for its own model: slice by slice,
// with a state for each. Belongs to one loop.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/algorithms/server/centre_state.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/plan.h>

namespace sluice::algorithms {

class LocalOptimizer final : public OwnState {
 public:
  // REQUIRES: plan outlives it; every tensor's type is one to calculate with.
  LocalOptimizer(const plan::Plan& plan, const optimizer::OptimizerSpec& update);

  // Makes one step of one slice. REQUIRES: checked `values`.
  void step(const plan::Slice& slice, std::span<std::byte> parameters,
            std::span<const std::byte> gradient, std::span<const double> values);

  void save(TensorId tensor, SavedTensor& saved) const override;
  void restore(TensorId tensor, const SavedTensor* saved) override;
  uint64_t steps() const override { return 0; }  // each slice's state counts its own
  void setSteps(uint64_t /*steps*/) override {}

 private:
  const plan::Plan& plan_;
  const optimizer::Optimizer& optimizer_;
  std::vector<optimizer::OptimizerState> states_;  // by SliceId
  std::vector<std::byte> wide_;                    // a gradient, in its accumulator's type
};

}  // namespace sluice::algorithms
