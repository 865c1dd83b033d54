// Measures how long the training thread waited at closed gates, by tensor, and how long any slice
// was on its way. sluice.report() prints both. Thread-safe.
#pragma once

#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/observer.h>

namespace sluice::pytorch {

class WaitTimes final : public StageObserver {
 public:
  explicit WaitTimes(size_t tensors) : waited_(tensors) {}

  void onStage(const StageEvent& event) override;
  void onWait(const WaitEvent& event) override;

  std::vector<double> seconds() const;  // by TensorId, since the start
  double secondsOnTheWay() const;  // in which any slice was handed over, and its result not here

 private:
  mutable base::Mutex mutex_;
  int64_t slicesOnTheWay_ SLUICE_GUARDED_BY(mutex_) = 0;
  TimePoint leftAt_ SLUICE_GUARDED_BY(mutex_);  // when the first of them left
  Duration onTheWay_ SLUICE_GUARDED_BY(mutex_){};
  std::vector<Duration> waited_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice::pytorch
