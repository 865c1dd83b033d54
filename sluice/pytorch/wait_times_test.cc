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

}  // namespace
}  // namespace sluice::pytorch
