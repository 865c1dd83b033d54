#include <tools/trace/staging_waits.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/observe/trace/testing/small_job.h>

namespace sluice::trace {
namespace {

using std::chrono::milliseconds;

// Rank 0 waits from 12 to 37 ms. Its slice is on the network from 11 (queued) to 20 ms and from 23
// to 33 ms, and is copied to the device from 33 to 36 ms.
TEST(StagingWaits, AreTheTimesInWhichOnlyCopiesAreUnderWay) {
  const auto traces = smallDeviceJob();
  const auto waits = stagingWaits(traces);
  ASSERT_EQ(waits.size(), 2);
  const StagingWaits& first = waits[0];
  EXPECT_EQ(first.rank, Rank{0});
  EXPECT_EQ(first.step, Step{1});
  EXPECT_EQ(first.length(), milliseconds(50 - 9));
  EXPECT_EQ(first.network, milliseconds((20 - 12) + (33 - 23)));
  EXPECT_EQ(first.staging, milliseconds(36 - 33));
  EXPECT_EQ(first.other, milliseconds((23 - 20) + (37 - 36)));  // sums, and the gate
  EXPECT_EQ(first.computing(), milliseconds((12 - 9) + (50 - 37)));
  EXPECT_EQ(first.stagingOut, milliseconds(1));
  EXPECT_EQ(first.stagingOutAndPush, milliseconds(0));
}

// Rank 1, which keeps its tensor in host memory, waits from 13 to 24 ms.
TEST(StagingWaits, OfARankMayBeForTheOthersCopies) {
  auto traces = smallDeviceJob();
  const auto stagingOf = [&] { return stagingWaits(traces)[1].staging; };
  EXPECT_EQ(stagingOf(), milliseconds(0));
  // Rank 0's copy takes until 16 ms, and the slice is sent from 18 ms on.
  traces[0].events[2].at = msAt(16);
  traces[0].events[3].at = msAt(18);
  EXPECT_EQ(stagingOf(), milliseconds(16 - 13));
  // A gradient that is there and is not copied yet counts, too.
  traces[0].events[1].at = msAt(15);
  EXPECT_EQ(stagingOf(), milliseconds(16 - 13));
  traces[0].events[0].at = msAt(14);
  EXPECT_EQ(stagingOf(), milliseconds(16 - 14));
}

TEST(StagingWaits, OfARankThatComputesAreNone) {
  auto traces = smallDeviceJob();
  traces[0].waits.clear();
  const StagingWaits first = stagingWaits(traces)[0];
  EXPECT_EQ(first.computing(), first.length());
}

// A second tensor, whose copies go before those of tensor 0.
void addCopy(RankTrace& trace, uint32_t slice, int64_t begun, int64_t ended) {
  const TensorId other{1};
  trace.tensors = {"first", "second"};
  trace.events.push_back(
      {Stage::kStageOut, Step{0}, other, SliceId{slice}, trace.rank, msAt(begun)});
  trace.events.push_back({Stage::kQueued, Step{0}, other, SliceId{slice}, Rank{1}, msAt(ended)});
}

TEST(StagingWaits, CountTheCopiesThatTheFirstTensorWaitedFor) {
  auto traces = smallDeviceJob();
  traces[0].events[0].at = msAt(6);  // tensor 0 is ready, and its copy begins at 10 ms
  const auto before = [&] { return stagingWaits(traces)[0].copiesBeforeFirst; };
  EXPECT_EQ(before(), 0);
  addCopy(traces[0], 1, 3, 5);  // has ended by then
  EXPECT_EQ(before(), 0);
  addCopy(traces[0], 2, 5, 7);
  EXPECT_EQ(before(), 1);
  addCopy(traces[0], 3, 7, 10);
  addCopy(traces[0], 4, 7, 10);  // the same copy
  EXPECT_EQ(before(), 2);
  addCopy(traces[0], 5, 11, 12);  // comes later
  EXPECT_EQ(before(), 2);
}

TEST(StagingWaits, SeeCopiesBesidePushes) {
  auto traces = smallDeviceJob();  // a push from 14 to 20 ms
  addCopy(traces[0], 1, 12, 17);
  const StagingWaits first = stagingWaits(traces)[0];
  EXPECT_EQ(first.stagingOut, milliseconds(1 + 5));
  EXPECT_EQ(first.stagingOutAndPush, milliseconds(17 - 14));
}

TEST(StagingWaits, TakeOnlyIterationsThatAreThereInFull) {
  auto traces = smallDeviceJob();
  for (auto& trace : traces)
    std::erase_if(trace.events, [](const auto& event) { return event.step == Step{1}; });
  EXPECT_TRUE(stagingWaits(traces).empty());
  EXPECT_TRUE(stagingWaits({}).empty());
}

}  // namespace
}  // namespace sluice::trace
