// Reports the stages of slices to an observer. Without an observer it does nothing.
#pragma once

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/data/plan/slicing.h>
#include <sluice/observer.h>

namespace sluice::plan {

class Stages final {
 public:
  // REQUIRES: both outlive this. `observer` may be null.
  Stages(StageObserver* observer, const Clock& clock) : observer_(observer), clock_(clock) {}

  // Reports that a slice enters a stage now.
  void enter(Stage stage, Step step, TensorId tensor, SliceId slice, Rank peer) const {
    if (observer_ != nullptr) observer_->onStage({stage, step, tensor, slice, peer, clock_.now()});
  }
  void enter(Stage stage, Step step, const Slice& slice, Rank peer) const {
    enter(stage, step, slice.tensor, slice.id, peer);
  }

 private:
  StageObserver* const observer_;
  const Clock& clock_;
};

}  // namespace sluice::plan
