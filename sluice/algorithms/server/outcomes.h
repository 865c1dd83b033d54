// The outcomes of a worker's slices in the steps of their tensors, as servers answer them: counts
// them, reports them (context.h), and opens the gates. Belongs to the fabric's loop.
#pragma once

#include <cstddef>
#include <vector>

#include <sluice/algorithms/context.h>

namespace sluice::algorithms {

class Outcomes final {
 public:
  // REQUIRES: the context outlives this.
  explicit Outcomes(const Context& context)
      : context_(context), tensors_(context.plan.model().tensors.size()) {}

  // Begins a step of the tensor: `slices` of its slices take part, all still without an outcome.
  // `step` is as its gate counts.
  void begin(TensorId tensor, Step step, size_t slices);

  // Notes the slice's outcome in the step. Returns true iff it is the last one of its tensor:
  // open() has to be called then. REQUIRES: the step has begun, and the slice has no outcome in it
  // yet.
  [[nodiscard]] bool add(const plan::Slice& slice, bool hasResult);

  // Opens the tensor's gate, and empty if no slice has a result. REQUIRES: every slice has an
  // outcome.
  void open(TensorId tensor);

  size_t slicesLeft(TensorId tensor) const { return tensors_[index(tensor)].slicesLeft; }

 private:
  struct OneTensor {
    Step step{};
    size_t slicesLeft = 0;
    bool hasResult = false;
    // Slices without a result, if somebody listens. They are reported only when the others'
    // outcomes are known: in a tensor that has a result, every slice has one, if only the old bytes.
    std::vector<SliceId> without{};
  };

  const Context& context_;
  std::vector<OneTensor> tensors_;  // by TensorId
};

}  // namespace sluice::algorithms
