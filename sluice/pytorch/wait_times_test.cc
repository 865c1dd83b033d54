#include <sluice/pytorch/wait_times.h>

#include <gtest/gtest.h>

namespace sluice::pytorch {
namespace {

using namespace std::chrono_literals;

TEST(WaitTimes, AddUpByTensor) {
  WaitTimes times(3);
  const TimePoint start{};
  times.onWait({TensorId{0}, Step{1}, start, start + 2s});
  times.onWait({TensorId{2}, Step{1}, start, start + 1s});
  times.onWait({TensorId{2}, Step{2}, start + 5s, start + 5500ms});
  EXPECT_EQ(times.seconds(), (std::vector<double>{2, 0, 1.5}));
}

TEST(WaitTimes, CountTimeOnTheWayOnce) {
  WaitTimes times(2);
  const TimePoint start{};
  const auto event = [&](Stage stage, uint32_t slice, Duration at) {
    times.onStage({stage, Step{1}, TensorId{0}, SliceId{slice}, Rank{0}, start + at});
  };
  event(Stage::kReady, 0, 1s);
  event(Stage::kReady, 1, 2s);
  event(Stage::kPush, 1, 2s);
  event(Stage::kApplied, 0, 3s);
  event(Stage::kApplied, 1, 5s);
  event(Stage::kReady, 0, 9s);
  EXPECT_EQ(times.secondsOnTheWay(), 4);
  event(Stage::kApplied, 0, 10s);
  EXPECT_EQ(times.secondsOnTheWay(), 5);
}

}  // namespace
}  // namespace sluice::pytorch
