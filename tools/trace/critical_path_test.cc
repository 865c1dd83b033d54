#include <tools/trace/critical_path.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/observe/trace/testing/small_job.h>

namespace sluice::trace {
namespace {

std::vector<std::string> partsOf(const Iteration& iteration) {
  std::vector<std::string> texts;
  for (const auto& part : iteration.parts) {
    texts.push_back(
        fmt::format("{} at {}: {}", part.name(), part.rank,
                    std::chrono::duration_cast<std::chrono::milliseconds>(part.length()).count()));
  }
  return texts;
}

TEST(CriticalPath, GoesFromTheGateBackToWhoPushedLast) {
  const auto traces = smallJob();
  const auto iterations = criticalPaths(traces);
  ASSERT_EQ(iterations.size(), 1);
  EXPECT_EQ(iterations[0].step, Step{1});
  EXPECT_EQ(iterations[0].rank, Rank{0});
  EXPECT_THAT(partsOf(iterations[0]),
              testing::ElementsAre("ready at 0: 1", "queued at 0: 3", "push at 0: 6",
                                   "reduce at 1: 2", "update at 1: 1", "queued at 1: 1",
                                   "publish at 1: 9", "gate at 0: 1", "compute at 0: 16"));
  EXPECT_EQ(iterations[0].explained(), iterations[0].length());
}

TEST(CriticalPath, HasTheCopiesBetweenDeviceAndHost) {
  const auto traces = smallDeviceJob();
  const auto iterations = criticalPaths(traces);
  ASSERT_EQ(iterations.size(), 1);
  EXPECT_THAT(
      partsOf(iterations[0]),
      testing::ElementsAre("ready at 0: 1", "stage-out at 0: 1", "queued at 0: 3", "push at 0: 6",
                           "reduce at 1: 2", "update at 1: 1", "queued at 1: 1", "publish at 1: 9",
                           "stage-in at 0: 3", "gate at 0: 1", "compute at 0: 13"));
  EXPECT_EQ(iterations[0].explained(), iterations[0].length());
}

// The slice lives at the rank that waits: nothing is pushed or published.
TEST(CriticalPath, HasTheCopiesOfASliceThatStaysHere) {
  auto traces = smallDeviceJob();
  RankTrace& server = traces[1];
  const SliceId slice{0};
  const TensorId tensor{0};
  server.events = {{Stage::kReady, Step{0}, tensor, slice, Rank{1}, msAt(10)},
                   {Stage::kStageOut, Step{0}, tensor, slice, Rank{1}, msAt(12)},
                   {Stage::kCollect, Step{0}, tensor, slice, Rank{1}, msAt(15)},
                   {Stage::kReduce, Step{0}, tensor, slice, Rank{1}, msAt(15)},
                   {Stage::kUpdate, Step{0}, tensor, slice, Rank{1}, msAt(17)},
                   {Stage::kStageIn, Step{0}, tensor, slice, Rank{1}, msAt(20)},
                   {Stage::kApplied, Step{0}, tensor, slice, Rank{1}, msAt(24)},
                   {Stage::kReady, Step{1}, tensor, slice, Rank{1}, msAt(40)}};
  server.waits = {{tensor, Step{0}, msAt(13), msAt(25)}};
  const auto iterations = criticalPaths(std::span(&server, 1));
  ASSERT_EQ(iterations.size(), 1);
  EXPECT_THAT(
      partsOf(iterations[0]),
      testing::ElementsAre("ready at 1: 2", "stage-out at 1: 3", "reduce at 1: 2", "update at 1: 3",
                           "stage-in at 1: 4", "gate at 1: 1", "compute at 1: 15"));
}

TEST(CriticalPath, LeadsToTheRankThatWasLate) {
  auto traces = smallJob();
  // Rank 1 hands over its own gradient only at 21 ms, after rank 0's part has come.
  traces[1].events[0].at = msAt(21);
  traces[1].events[1].at = msAt(21);
  traces[1].events[3].at = msAt(21);
  const auto iterations = criticalPaths(traces);
  ASSERT_EQ(iterations.size(), 1);
  EXPECT_THAT(
      partsOf(iterations[0]),
      testing::ElementsAre("compute at 1: 11", "reduce at 1: 1", "update at 1: 1", "queued at 1: 1",
                           "publish at 1: 9", "gate at 0: 1", "compute at 0: 16"));
}

TEST(CriticalPath, SaysWhatNoTraceKnows) {
  auto traces = smallJob();
  traces.pop_back();  // the server's is missing
  const auto iterations = criticalPaths(traces);
  ASSERT_EQ(iterations.size(), 1);
  EXPECT_THAT(partsOf(iterations[0]),
              testing::ElementsAre("unknown at 0: 23", "gate at 0: 1", "compute at 0: 16"));
  EXPECT_EQ(iterations[0].explained(), std::chrono::milliseconds(17));
}

TEST(CriticalPath, OfClocksThatDisagreeStillEnds) {
  for (const int64_t error : {-30, -7, 7, 30}) {
    auto traces = smallJob();
    shift(traces[1], std::chrono::milliseconds(error));
    for (const auto& iteration : criticalPaths(traces)) {
      Duration sum{};
      for (const auto& part : iteration.parts) sum += part.length();
      EXPECT_EQ(sum, iteration.length()) << error;
    }
  }
}

TEST(CriticalPath, AGateThatWasOpenAlreadyIsNoWait) {
  auto traces = smallJob();
  traces[0].waits = {{TensorId{0}, Step{0}, msAt(35), msAt(36)}};
  const auto iterations = criticalPaths(traces);
  ASSERT_EQ(iterations.size(), 1);
  EXPECT_THAT(partsOf(iterations[0]),
              testing::ElementsAre("compute at 0: 25", "gate at 0: 1", "compute at 0: 14"));
}

TEST(CriticalPath, TakesOnlyIterationsThatAreThereInFull) {
  auto traces = smallJob();
  for (auto& trace : traces)
    std::erase_if(trace.events, [](const auto& event) { return event.step == Step{1}; });
  EXPECT_TRUE(criticalPaths(traces).empty());
  EXPECT_TRUE(criticalPaths({}).empty());
}

}  // namespace
}  // namespace sluice::trace
