#include <sluice/pytorch/wait_times.h>

#include <sluice/base/clock.h>

namespace sluice::pytorch {

void WaitTimes::onStage(const StageEvent& event) {
  if (event.stage != Stage::kReady && event.stage != Stage::kApplied) return;
  const base::Lock lock(mutex_);
  // The time is counted from the first slice that leaves to the last one that is back: what the
  // network is busy with at all, not a sum over slices.
  if (event.stage == Stage::kReady) {
    if (slicesOnTheWay_++ == 0) leftAt_ = event.at;
  } else if (--slicesOnTheWay_ == 0) {
    onTheWay_ += event.at - leftAt_;
  }
}

double WaitTimes::secondsOnTheWay() const {
  const base::Lock lock(mutex_);
  return base::seconds(onTheWay_);
}

void WaitTimes::onWait(const WaitEvent& event) {
  const base::Lock lock(mutex_);
  waited_.at(index(event.tensor)) += event.to - event.from;
}

std::vector<double> WaitTimes::seconds() const {
  const base::Lock lock(mutex_);
  std::vector<double> seconds;
  for (const Duration waited : waited_) seconds.push_back(base::seconds(waited));
  return seconds;
}

}  // namespace sluice::pytorch
