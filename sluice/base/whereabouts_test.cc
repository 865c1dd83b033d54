#include <sluice/base/whereabouts.h>

#include <algorithm>
#include <chrono>
#include <set>

#include <gtest/gtest.h>

#include <sluice/base/testing/manual_clock.h>

namespace sluice::base {
namespace {

using namespace std::chrono_literals;

class WhereaboutsTest : public testing::Test {
 protected:
  ManualClock clock_;
  TrainingThread thread_{clock_};
};

TEST_F(WhereaboutsTest, AThreadIsInUserCodeUntilItCalls) {
  clock_.advance(12s);
  EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kUserCode, 0, 12s}));
  const auto before = thread_.enter(Doing::kForward, 4);
  clock_.advance(3s);
  EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kForward, 4, 3s}));
  thread_.leave(before);
  clock_.advance(2s);
  EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kUserCode, 4, 2s}));  // not since the first time
}

TEST_F(WhereaboutsTest, AnInnerCallGivesBackTheOuterOneWithItsTime) {
  const TrainingThread::Call outer(&thread_, Doing::kForward, 4);
  clock_.advance(1s);
  {
    const TrainingThread::Call inner(&thread_, Doing::kGate, 3);
    clock_.advance(5s);
    EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kGate, 3, 5s}));
  }
  EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kForward, 4, 6s}));
}

TEST_F(WhereaboutsTest, ABroadcastKeepsTheNameOfTheCallAroundIt) {
  const auto mean = thread_.enter(Doing::kMean);
  clock_.advance(1s);
  const auto broadcast = thread_.enter(Doing::kBroadcast);
  EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kMean, 0, 1s}));
  thread_.leave(broadcast);
  EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kMean, 0, 1s}));
  thread_.leave(mean);
  const TrainingThread::Call gather(&thread_, Doing::kGather);
  EXPECT_EQ(thread_.now().doing, Doing::kGather);
}

TEST_F(WhereaboutsTest, ACallThatNeverWaitsBeginsUserCodeAnew) {
  clock_.advance(12s);
  thread_.pass();
  EXPECT_EQ(thread_.now().since, 0s);
  const TrainingThread::Call outer(&thread_, Doing::kBackward, 4);
  clock_.advance(2s);
  thread_.pass();
  EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kBackward, 4, 2s}));
}

TEST_F(WhereaboutsTest, AfterAnInterruptedCallTheThreadCanBePutIntoUserCode) {
  (void)thread_.enter(Doing::kForward, 4);  // cut short by Ctrl-C
  (void)thread_.enter(Doing::kForward, 4);
  thread_.leave({});
  EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kUserCode, 4, 0s}));
}

TEST_F(WhereaboutsTest, NobodyNeedsToBeTold) {
  const TrainingThread::Call call(nullptr, Doing::kMean);
  EXPECT_EQ(thread_.now().doing, Doing::kUserCode);
}

TEST_F(WhereaboutsTest, StepsAndTimesOfALongJobFit) {
  clock_.advance(24h * 365);
  const uint64_t last = 0xffff'ffff;
  (void)thread_.enter(Doing::kForward, last);
  clock_.advance(24h * 7);
  EXPECT_EQ(thread_.now(), (Whereabouts{Doing::kForward, last, 24h * 7}));
}

TEST(Doing, EveryNumberHasAKindAndEveryKindItsText) {
  std::set<std::string> texts;
  for (int number = 0; number < 256; ++number) {
    const Doing doing = doingOf(static_cast<uint8_t>(number));
    EXPECT_EQ(doing, static_cast<Doing>(std::min(number, static_cast<int>(Doing::kElsewhere))));
    texts.insert(describe({.doing = doing, .step = 4, .since = 1s}));
  }
  EXPECT_EQ(texts.size(), static_cast<size_t>(Doing::kElsewhere) + 1);
  EXPECT_EQ(describe({Doing::kForward, 4, 1s}), "in the forward pass of step 4");
  EXPECT_EQ(describe({doingOf(200), 4, 1s}), "somewhere else");
}

TEST(Doing, TimesAreShort) {
  EXPECT_EQ(describeSince(440ms), "0.4 s");
  EXPECT_EQ(describeSince(9940ms), "9.9 s");
  EXPECT_EQ(describeSince(598200ms), "598 s");
}

}  // namespace
}  // namespace sluice::base
