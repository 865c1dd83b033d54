#include <sluice/observe/trace/wall_clock.h>

#include <gtest/gtest.h>

namespace sluice::trace {
namespace {

using namespace std::chrono_literals;

TEST(WallClock, IsThatOfTheMachine) {
  const WallClock clock = readWallClock();
  const Duration wall = std::chrono::system_clock::now().time_since_epoch();
  const Duration steady = std::chrono::steady_clock::now().time_since_epoch();
  EXPECT_LT(std::chrono::abs(wall - steady - clock.ahead), 1s);
  EXPECT_GT(clock.uncertainty, 0s);
  EXPECT_LT(clock.uncertainty, 1s);
}

TEST(WallClock, TwoReadingsAreBothCovered) {
  const WallClock begin{100s, 2us};
  EXPECT_EQ(covering(begin, {100s, 2us}), begin);
  EXPECT_EQ(covering(begin, {100s + 1us, 1us}), begin);
  const WallClock wasSet{103s, 2us};
  EXPECT_EQ(covering(begin, wasSet), (WallClock{101500ms, 1500ms + 2us}));
  EXPECT_EQ(covering(wasSet, begin), covering(begin, wasSet));
  const WallClock odd = covering({Duration(0), Duration(0)}, {Duration(3), Duration(0)});
  EXPECT_LE(odd.ahead - odd.uncertainty, Duration(0));
  EXPECT_GE(odd.ahead + odd.uncertainty, Duration(3));
}

}  // namespace
}  // namespace sluice::trace
