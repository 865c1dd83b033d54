// The gradients that come slice by slice: which slices of a tensor have come in its present step,
// and who waits for all of them. Belongs to the fabric's loop.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <sluice/algorithms/contribution.h>
#include <sluice/base/clock.h>
#include <sluice/data/plan/plan.h>

namespace sluice::session {

class ComingGradients final {
 public:
  // REQUIRES: the plan outlives this.
  explicit ComingGradients(const plan::Plan& plan) : plan_(plan) {}

  // Announces the gradient of `step`, which comes from now on. REQUIRES: no other gradient of the
  // tensor is coming.
  void announce(TensorId tensor, Step step, TimePoint at);

  // Notes that the slice at `place` among the tensor's slices has come. Returns it as the strategy
  // takes it. REQUIRES: the gradient was announced, and the slice has not come before.
  algorithms::SliceContribution come(TensorId tensor, size_t place);

  // Runs `then` when every gradient that was announced is complete: at once, if all are. The caller
  // runs what takeWaiting() returns after the strategy has taken the last slice.
  void whenComplete(std::function<void()> then);
  // Returns what waited, in order; nothing, if a gradient is not complete.
  std::vector<std::function<void()>> takeWaiting();

  // Forgets what comes and who waits: after an error nothing more is begun.
  void clear();

  bool isComing(TensorId tensor) const { return !tensors_.empty() && missing(tensor) > 0; }
  TimePoint announcedAt(TensorId tensor) const { return tensors_[index(tensor)].announced; }

  // "3 of 8 slices not yet copied from the device"; empty if all have come.
  std::string describe(TensorId tensor) const;

 private:
  struct OneTensor {
    Step step{};
    TimePoint announced{};
    size_t missing = 0;          // slices
    std::vector<bool> isHere{};  // by place
  };
  size_t missing(TensorId tensor) const { return tensors_[index(tensor)].missing; }

  const plan::Plan& plan_;
  std::vector<OneTensor> tensors_;  // by TensorId; empty until the first gradient is announced
  size_t incomplete_ = 0;           // tensors
  std::vector<std::function<void()>> waiting_;
};

}  // namespace sluice::session
