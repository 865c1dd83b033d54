#include <sluice/pytorch/wait_times.h>

#include <sluice/base/clock.h>

namespace sluice::pytorch {

void WaitTimes::onWait(const plan::WaitEvent& event) {
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
