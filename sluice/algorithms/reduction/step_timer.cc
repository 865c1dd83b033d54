#include <sluice/algorithms/reduction/step_timer.h>

#include <utility>

#include <sluice/base/median.h>

namespace sluice::algorithms {
namespace {

double takeMedian(std::vector<double>& values) {
  return values.empty() ? 0 : base::median(std::exchange(values, {}));
}

}  // namespace

void StepTimer::ready(TensorId tensor, Step step, TimePoint now) {
  // A step begins, for this rank, with its first gradient. Times count from there and not from
  // the end of the step before, so that pauses of the training loop stay out of them.
  if (!begun_ || index(step) > index(begun_->step)) begun_ = Begun{step, now};
  // A late tensor of the step before is left out: the beginning of its step is forgotten.
  if (step == begun_->step) ready_[index(tensor)].push_back(base::seconds(now - begun_->at));
}

timing::StepTimes StepTimer::takeMedians() {
  timing::StepTimes times;
  for (auto& values : ready_) times.ready.push_back(takeMedian(values));
  for (auto& values : reduced_) times.reduced.push_back(takeMedian(values));
  return times;
}

}  // namespace sluice::algorithms
