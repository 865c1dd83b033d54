#include <sluice/session/receiving.h>

#include <gtest/gtest.h>

namespace sluice::session {
namespace {

TimePoint receivedAt(int64_t milliseconds) {
  return TimePoint(std::chrono::milliseconds(milliseconds));
}

TEST(Receiving, CountsTimeInWhichAnyPayloadComesOnce) {
  Receiving receiving;
  receiving.begun(receivedAt(10));
  receiving.begun(receivedAt(12));
  receiving.ended(Receiving::kAtOnce + 1000, receivedAt(15));
  EXPECT_EQ(receiving.bytes(), 1000U);
  EXPECT_EQ(receiving.time(), Duration::zero());  // another one still comes
  receiving.ended(Receiving::kAtOnce + 500, receivedAt(20));
  receiving.begun(receivedAt(90));  // idle before
  receiving.ended(Receiving::kAtOnce, receivedAt(91));
  EXPECT_EQ(receiving.bytes(), 1500U);
  EXPECT_EQ(receiving.time(), std::chrono::milliseconds(11));
}

}  // namespace
}  // namespace sluice::session
