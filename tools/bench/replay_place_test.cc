#include <tools/bench/replay_place.h>

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint kStart{milliseconds(1000)};

TEST(Timeline, WorkFollowsWorkWithoutGaps) {
  Timeline timeline(kStart);
  EXPECT_EQ(timeline.compute(milliseconds(3)), kStart + milliseconds(3));
  EXPECT_EQ(timeline.compute(milliseconds(0)), kStart + milliseconds(3));
  EXPECT_EQ(timeline.compute(milliseconds(4)), kStart + milliseconds(7));
}

TEST(Timeline, AClosedGateMovesWhatComesAfterIt) {
  Timeline timeline(kStart);
  timeline.compute(milliseconds(3));
  timeline.holdUntil(kStart + milliseconds(10));
  EXPECT_EQ(timeline.end(), kStart + milliseconds(10));
  EXPECT_EQ(timeline.compute(milliseconds(4)), kStart + milliseconds(14));
}

TEST(Timeline, AGateThatOpenedEarlierMovesNothing) {
  Timeline timeline(kStart);
  timeline.compute(milliseconds(3));
  timeline.holdUntil(kStart + milliseconds(2));
  EXPECT_EQ(timeline.end(), kStart + milliseconds(3));
}

}  // namespace
}  // namespace sluice::bench
