// Tracing and metrics look at the path of a slice from outside: whoever moves a slice from one stage to the
// next says so once, and knows nothing of what becomes of it.
#pragma once

#include <sluice/base/clock.h>
#include <sluice/plan/ids.h>
#include <sluice/plan/stage.h>

namespace sluice::plan {

// One slice entered a stage. The stage before it, of the same slice, step and peer, ended at that moment.
struct StageEvent {
  Stage stage;
  Step step;
  TensorId tensor;
  SliceId slice;
  Rank peer;  // the other end for kQueued, kPush and kPublish; whose part it was for kCollect; else this rank
  TimePoint at;
};

// The forward pass stood before a closed gate from `from` to `to`.
struct WaitEvent {
  TensorId tensor;
  Step step;  // the step whose result it waited for
  TimePoint from;
  TimePoint to;
};

// Called from the loop (onStage) and from the threads that wait (onWait): implementations are thread-safe and
// quick, since they run in the middle of the path.
class StageObserver {
 public:
  virtual ~StageObserver() = default;
  virtual void onStage(const StageEvent& event) = 0;
  virtual void onWait(const WaitEvent& event) = 0;
};

}  // namespace sluice::plan
