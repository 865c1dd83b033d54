#include <sluice/strategy/step_timer.h>

#include <algorithm>

namespace sluice::strategy {
namespace {

double takeMedian(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  const double median = *middle;
  values.clear();
  return median;
}

}  // namespace

void StepTimer::ready(TensorId tensor, Step step, TimePoint now) {
  if (!begun_ || index(step) > index(begun_->step)) begun_ = Begun{step, now};
  // A tensor of the step before that comes late: its step's beginning is forgotten.
  if (step == begun_->step) ready_[index(tensor)].push_back(base::seconds(now - begun_->at));
}

plan::StepTimes StepTimer::takeMedians() {
  plan::StepTimes times;
  for (auto& values : ready_) times.ready.push_back(takeMedian(values));
  for (auto& values : reduced_) times.reduced.push_back(takeMedian(values));
  return times;
}

}  // namespace sluice::strategy
