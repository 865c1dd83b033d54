#include <sluice/algorithms/reduction/step_timer.h>

#include <gtest/gtest.h>

#include <sluice/base/testing/manual_clock.h>

namespace sluice::algorithms {
namespace {

using namespace std::chrono_literals;

TEST(StepTimer, CountsFromTheFirstGradientOfAStep) {
  base::ManualClock clock;
  StepTimer timer(3, 2);
  for (uint64_t step = 0; step < 5; ++step) {
    clock.advance(100ms);  // forward
    for (uint32_t t = 3; t-- > 0; clock.advance(10ms))
      timer.ready(TensorId{t}, Step{step}, clock.now());
    timer.reduced(0, 5ms);
    timer.reduced(1, 7ms);
  }
  EXPECT_EQ(timer.takeMedians(), (timing::StepTimes{{0.02, 0.01, 0}, {0.005, 0.007}}));
  EXPECT_EQ(timer.takeMedians(), (timing::StepTimes{{0, 0, 0}, {0, 0}}));  // nothing since
}

TEST(StepTimer, APauseMovesNoMedian) {
  base::ManualClock clock;
  StepTimer timer(2, 1);
  for (uint64_t step = 0; step < 5; ++step) {
    timer.ready(TensorId{1}, Step{step}, clock.now());
    clock.advance(step == 2 ? 10s : 10ms);
    timer.ready(TensorId{0}, Step{step}, clock.now());
    timer.reduced(0, step == 3 ? 10s : 1ms);
  }
  EXPECT_EQ(timer.takeMedians(), (timing::StepTimes{{0.01, 0}, {0.001}}));
}

TEST(StepTimer, ATensorOfAnEarlierStepIsPassedOver) {
  base::ManualClock clock;
  StepTimer timer(2, 1);
  timer.ready(TensorId{1}, Step{0}, clock.now());
  clock.advance(5ms);
  timer.ready(TensorId{1}, Step{1}, clock.now());
  timer.ready(TensorId{0}, Step{0}, clock.now());
  clock.advance(3ms);
  timer.ready(TensorId{0}, Step{1}, clock.now());
  EXPECT_EQ(timer.takeMedians(), (timing::StepTimes{{0.003, 0}, {0}}));
}

}  // namespace
}  // namespace sluice::algorithms
