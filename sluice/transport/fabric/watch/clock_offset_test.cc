#include <sluice/transport/fabric/watch/clock_offset.h>

#include <gtest/gtest.h>

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;

// An exchange with a peer whose clock is `offset` ahead, begun at `start`.
ClockExchange exchange(Duration start, Duration offset, Duration there, Duration held,
                       Duration back) {
  const TimePoint t1(start);
  const TimePoint t2 = t1 + there + offset;
  const TimePoint t3 = t2 + held;
  return {t1, t2, t3, t3 - offset + back};
}

TEST(ClockOffset, IsExactOnASymmetricPath) {
  for (const Duration offset : {Duration(0s), Duration(3s), Duration(-40ms)}) {
    EXPECT_EQ(exchange(1s, offset, 2ms, 250ms, 2ms).measure(), (ClockOffset{offset, 4ms}));
  }
}

TEST(ClockOffset, IsWrongByAtMostHalfTheRoundTrip) {
  const ClockOffset measured = exchange(1s, 5s, 9ms, 100ms, 1ms).measure();
  EXPECT_EQ(measured.roundTrip, 10ms);
  EXPECT_LE(std::chrono::abs(measured.offset - 5s), measured.roundTrip / 2);
}

TEST(OffsetEstimate, TrustsTheQuickestOfTheLatest) {
  OffsetEstimate estimate;
  EXPECT_FALSE(estimate.best());
  estimate.add(exchange(1s, 5s, 9ms, 0s, 1ms));
  estimate.add(exchange(2s, 5s, 1ms, 0s, 1ms));
  estimate.add(exchange(3s, 5s, 30ms, 0s, 1ms));
  EXPECT_EQ(estimate.best(), (ClockOffset{5s, 2ms}));
  for (int i = 0; i < 16; ++i)
    estimate.add(exchange(4s, 6s, 2ms, 0s, 2ms));  // the clock has drifted
  EXPECT_EQ(estimate.best(), (ClockOffset{6s, 4ms}));
}

}  // namespace
}  // namespace sluice::fabric
