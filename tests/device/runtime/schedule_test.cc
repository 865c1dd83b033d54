#include <tests/device/runtime/schedule.h>

#include <gtest/gtest.h>

namespace sluice::pretend {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr StreamIndex kA = 0;
constexpr StreamIndex kB = 1;
constexpr StreamIndex kC = 2;
constexpr uintptr_t kBlock = 0x1000;
constexpr uintptr_t kOtherBlock = 0x2000;

Work kernel(std::vector<Use> uses = {}) {
  Work work;
  work.uses = std::move(uses);
  return work;
}

Work waitFor(Place place) {
  Work work;
  work.kind = Kind::kWait;
  work.awaited = place;
  return work;
}

class ScheduleTest : public ::testing::Test {
 protected:
  ScheduleTest() { set(Mode::kAdversary); }

  void set(Mode mode) {
    Settings settings;
    settings.mode = mode;
    settings.patience = milliseconds(1);
    schedule_.set(settings);
  }

  bool mayRun(StreamIndex stream) { return !schedule_.holdUntil(stream, now_); }
  void run(StreamIndex stream) {
    schedule_.take(stream);
    schedule_.finish(stream, now_);
  }

  TimePoint now_{Duration(1'000'000'000)};
  Schedule schedule_{3};
};

TEST_F(ScheduleTest, EagerWorkRunsAtOnce) {
  set(Mode::kEager);
  schedule_.add(kA, kernel(), now_);
  EXPECT_TRUE(mayRun(kA));
}

TEST_F(ScheduleTest, WaitsHoldInEveryMode) {
  for (const Mode mode : {Mode::kEager, Mode::kRandom, Mode::kAdversary}) {
    set(mode);
    const Place produced = schedule_.add(kA, kernel(), now_);
    schedule_.add(kB, waitFor(produced), now_);
    EXPECT_FALSE(mayRun(kB));
    run(kA);
    EXPECT_TRUE(mayRun(kB));
    run(kB);
  }
}

TEST_F(ScheduleTest, SameSeedGivesSameDelays) {
  Settings settings;
  settings.mode = Mode::kRandom;
  std::vector<std::optional<TimePoint>> first;
  for (int round = 0; round < 2; ++round) {
    settings.seed = 7;
    schedule_.set(settings);
    for (size_t i = 0; i < 20; ++i) {
      schedule_.add(kA, kernel(), now_);
      const std::optional<TimePoint> until = schedule_.holdUntil(kA, now_);
      if (round == 0) {
        first.push_back(until);
      } else {
        EXPECT_EQ(until, first[i]);
      }
      if (until) {
        EXPECT_LE(*until, now_ + settings.longestDelay);
      }
      run(kA);
    }
  }
}

TEST_F(ScheduleTest, AdversaryHoldsUndemandedWork) {
  const Place place = schedule_.add(kA, kernel(), now_);
  EXPECT_FALSE(mayRun(kA));
  now_ += microseconds(666);
  schedule_.add(kB, kernel(), now_);  // the host makes progress
  now_ += microseconds(666);
  EXPECT_FALSE(mayRun(kA));
  schedule_.demand(place, now_);
  EXPECT_TRUE(mayRun(kA));
  EXPECT_FALSE(mayRun(kB));
}

TEST_F(ScheduleTest, AdversaryLosesPatience) {
  schedule_.add(kA, kernel(), now_);
  schedule_.add(kA, kernel(), now_);
  now_ += milliseconds(1);
  EXPECT_TRUE(mayRun(kA));
  run(kA);
  EXPECT_TRUE(mayRun(kA)) << "a stream catches up as a whole";
}

TEST_F(ScheduleTest, AdversaryLosesPatienceWithABusyHost) {
  schedule_.add(kA, kernel(), now_);
  for (int i = 0; i < 60; ++i) {
    now_ += milliseconds(1) - Duration(1);
    schedule_.add(kB, kernel(), now_);
  }
  EXPECT_TRUE(mayRun(kA));
}

TEST_F(ScheduleTest, AdversaryHoldsNoLongQueue) {
  for (int i = 0; i < 1025; ++i) schedule_.add(kA, kernel(), now_);
  EXPECT_TRUE(mayRun(kA));
}

TEST_F(ScheduleTest, DemandFollowsWaits) {
  const Place produced = schedule_.add(kA, kernel(), now_);
  const Place passed = schedule_.add(kB, waitFor(produced), now_);
  const Place last = schedule_.add(kC, waitFor(passed), now_);
  EXPECT_FALSE(mayRun(kA));
  schedule_.demand(last, now_);
  EXPECT_TRUE(mayRun(kA));
}

TEST_F(ScheduleTest, PatienceWithAWaitDemandsTheWorkBehindIt) {
  const Place produced = schedule_.add(kA, kernel(), now_);
  schedule_.add(kB, waitFor(produced), now_);
  now_ += milliseconds(1);
  EXPECT_FALSE(mayRun(kB));
  EXPECT_TRUE(mayRun(kA));
}

TEST_F(ScheduleTest, LaterWriterGoesFirst) {
  const Place reads = schedule_.add(kB, kernel({{kBlock, false}}), now_);
  schedule_.add(kA, kernel({{kOtherBlock, true}}), now_);
  schedule_.add(kA, kernel({{kBlock, true}}), now_);
  schedule_.demand(reads, now_);
  EXPECT_FALSE(mayRun(kB));
  EXPECT_TRUE(mayRun(kA));
  run(kA);
  EXPECT_FALSE(mayRun(kB));
  schedule_.take(kA);
  EXPECT_FALSE(mayRun(kB)) << "the writer has not ended";
  schedule_.finish(kA, now_);
  EXPECT_TRUE(mayRun(kB));
}

TEST_F(ScheduleTest, LaterReaderDoesNoHarmToAReader) {
  const Place reads = schedule_.add(kB, kernel({{kBlock, false}}), now_);
  schedule_.add(kA, kernel({{kBlock, false}}), now_);
  schedule_.demand(reads, now_);
  EXPECT_TRUE(mayRun(kB));
}

TEST_F(ScheduleTest, LaterWriterThatWaitsComesLater) {
  const Place reads = schedule_.add(kB, kernel({{kBlock, false}}), now_);
  const Place middle = schedule_.add(kC, waitFor(reads), now_);
  schedule_.add(kA, waitFor(middle), now_);
  schedule_.add(kA, kernel({{kBlock, true}}), now_);
  schedule_.demand(reads, now_);
  EXPECT_TRUE(mayRun(kB));
}

TEST_F(ScheduleTest, ForgottenProducerStaysLate) {
  schedule_.add(kA, kernel({{kBlock, true}}), now_);
  const Place reads = schedule_.add(kB, kernel({{kBlock, false}}), now_);
  schedule_.add(kA, kernel({{kBlock, true}}), now_);
  schedule_.demand(reads, now_);
  EXPECT_TRUE(mayRun(kB));
  EXPECT_FALSE(mayRun(kA));
}

TEST_F(ScheduleTest, DemandedCopyWaitsForOtherHostThreads) {
  Work copy = kernel({{kBlock, false}});
  copy.kind = Kind::kCopy;
  const Place copied = schedule_.add(kB, std::move(copy), now_);
  schedule_.demand(copied, now_);
  EXPECT_FALSE(mayRun(kB));
  now_ += microseconds(100);
  EXPECT_TRUE(mayRun(kB));
}

}  // namespace
}  // namespace sluice::pretend
