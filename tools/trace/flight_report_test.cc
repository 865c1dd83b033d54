#include <tools/trace/flight_report.h>

#include <gtest/gtest.h>

#include <tools/trace/testing/flight_story.h>

namespace sluice::flight {
namespace {

FlightReport reportOfStories(std::vector<SavedFlight>& files) {
  return reportOf(files);
}

TEST(FlightReport, ALostRankIsNamedWithTheLayerThatWasWaitedFor) {
  FlightStory first(0);
  first.begins(1, 12).waits(10, "fc.weight", 12);
  first.says(20, EventKind::kPeerLost, "rank 1 is lost: connection reset", {.peer = 1});
  first.says(20, EventKind::kFailed, "rank 1 is lost: connection reset");
  first.waitFails(21, "fc.weight", 12, "waiting for 'fc.weight': rank 1 is lost");
  FlightStory third(2);
  third.begins(1, 12).says(25, EventKind::kPeerLost, "rank 1 is lost", {.peer = 1});
  third.says(90, EventKind::kPeerLost, "rank 0 is lost", {.peer = 0});
  std::vector files{first.saved(), third.saved()};
  const FlightReport report = reportOfStories(files);
  ASSERT_TRUE(report.fault);
  EXPECT_EQ(report.fault->rank, 1);
  EXPECT_EQ(report.fault->fate, Fate::kLost);
  EXPECT_EQ(report.fault->layer, "fc.weight");
  EXPECT_EQ(report.fault->step, 12);
  EXPECT_EQ(report.fault->session, "model");
  EXPECT_EQ(report.fault->waiting, (std::vector<uint32_t>{0, 2}));
  ASSERT_EQ(report.ranks.size(), 3);
  EXPECT_EQ(report.ranks[2].rank, 1);  // it has left no file
  EXPECT_EQ(report.ranks[2].file, nullptr);
}

TEST(FlightReport, ALossBetweenTwoWaitsHasTheLayerOfTheNext) {
  FlightStory first(0);
  first.waits(1, "conv1", 3)
      .at(2, EventKind::kWaitEnds, {.step = 3, .name = first.ring().nameOf("conv1")});
  first.says(5, EventKind::kPeerLost, "rank 2 is lost", {.peer = 2});
  first.waits(9, "conv1", 4).waitFails(9, "conv1", 4, "rank 2 is lost");
  std::vector files{first.saved()};
  const FlightReport report = reportOfStories(files);
  ASSERT_TRUE(report.fault);
  EXPECT_EQ(report.fault->rank, 2);
  EXPECT_EQ(report.fault->layer, "conv1");
  EXPECT_EQ(report.fault->step, 4);
}

TEST(FlightReport, ASlowRankIsTheOneThatSentNothingOfTheStep) {
  FlightStory first(0);
  for (const uint64_t step : {4U, 5U}) first.begins(10, step).hears(10, 1, step);
  first.hears(10, 2, 4).waits(20, "conv1", 5);
  std::vector files{first.saved()};
  const auto open = reportOfStories(files).fault;
  ASSERT_TRUE(open);
  EXPECT_EQ(open->rank, 2);
  EXPECT_EQ(open->fate, Fate::kLate);
  // Its time-out, and the end of the program by it, change nothing.
  first.waitFails(900, "conv1", 5, "'conv1' of step 5 did not come within 1s; rank 1 waits, too");
  first.says(901, EventKind::kFailed, "this rank ended with TimeoutError");
  FlightStory third(2);
  third.begins(1, 4).says(905, EventKind::kFailed, "rank 0 ended with TimeoutError");
  files = {first.saved(), third.saved()};
  const auto failed = reportOfStories(files).fault;
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->rank, 2);
  EXPECT_EQ(failed->layer, "conv1");
  EXPECT_EQ(failed->step, 5);
}

TEST(FlightReport, AServerThatWaitsForAWorkerIsNotToBlame) {
  // Rank 0 hears from the server alone, and the server does not hear from rank 1.
  FlightStory worker(0);
  worker.begins(1, 3).hears(1, 2, 2).waits(5, "fc", 3);
  FlightStory server(2);
  server.hears(1, 0, 3).hears(1, 1, 2);
  std::vector files{worker.saved(), server.saved()};
  const auto fault = reportOfStories(files).fault;
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->rank, 1);
  EXPECT_EQ(fault->layer, "fc");
}

TEST(FlightReport, ARankThatIsAloneInABroadcastIsLateForTheLayer) {
  FlightStory first(0, 2);
  first.begins(1, 5).hears(1, 1, 5).at(6, EventKind::kBroadcastBegins, {.peer = 1});
  first.says(1001, EventKind::kFailed, "rank 1 ended with TimeoutError");
  FlightStory second(1, 2);
  second.begins(1, 6).hears(1, 0, 5).waits(9, "conv1", 6);
  second.waitFails(1000, "conv1", 6, "'conv1' of step 6 did not come within 1s");
  second.says(1000, EventKind::kFailed, "this rank ended with TimeoutError");
  std::vector files{first.saved(), second.saved()};
  const auto fault = reportOfStories(files).fault;
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->rank, 0);
  EXPECT_EQ(fault->layer, "conv1");
}

TEST(FlightReport, ARankThatAbortedSaysSoItself) {
  FlightStory first(0);
  first.waits(1, "fc", 2).says(9, EventKind::kPeerLost, "rank 1 is lost", {.peer = 1});
  FlightStory second(1);
  second.begins(1, 2)
      .says(8, EventKind::kFailed, "check failed: a == b")
      .at(8, EventKind::kAborted);
  std::vector files{first.saved(), second.saved()};
  const auto fault = reportOfStories(files).fault;
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->rank, 1);
  EXPECT_EQ(fault->fate, Fate::kAborted);
  EXPECT_EQ(fault->why, "check failed: a == b");
  EXPECT_EQ(fault->layer, "fc");
}

TEST(FlightReport, OfTwoSidesThatHaveLostEachOtherTheSmallerOneIsNamed) {
  FlightStory cut(1);
  cut.says(5, EventKind::kPeerLost, "nothing heard", {.peer = 0});
  cut.says(6, EventKind::kPeerLost, "nothing heard", {.peer = 2});
  FlightStory first(0);
  first.waits(1, "fc", 3).says(8, EventKind::kPeerLost, "nothing heard", {.peer = 1});
  FlightStory third(2);
  third.says(9, EventKind::kPeerLost, "nothing heard", {.peer = 1});
  std::vector files{cut.saved(), first.saved(), third.saved()};
  const auto fault = reportOfStories(files).fault;
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->rank, 1);
  EXPECT_EQ(fault->layer, "fc");
}

TEST(FlightReport, AMeetingNamesTheRanksThatAreNotInIt) {
  FlightStory first(0, 2);
  const uint32_t name = first.ring().nameOf("leave/model");
  first.at(5, EventKind::kMeetingBegins, {.name = name});
  FlightStory second(1, 2);
  second.begins(3, 9);
  std::vector files{first.saved(), second.saved()};
  const auto fault = reportOfStories(files).fault;
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->rank, 1);
  EXPECT_EQ(fault->during, "leave/model");
}

TEST(FlightReport, OfSeveralRunsTheLatestIsRead) {
  FlightStory old(0, 3, 1);
  old.says(5, EventKind::kPeerLost, "rank 2 is lost", {.peer = 2});
  FlightStory now(0, 3, 2);
  std::vector files{old.saved(), now.saved()};
  files[0].path = "old";
  const FlightReport report = reportOfStories(files);
  EXPECT_EQ(report.leftOut, std::vector<std::string>{"old"});
  EXPECT_FALSE(report.fault);
}

TEST(FlightReport, FindsTheRankThatATextNames) {
  EXPECT_EQ(rankNamedIn("rank 3 is lost: rank 2 reports"), 3);
  EXPECT_EQ(rankNamedIn("waiting for 'rank 7': ranks 4-6 are gone"), 4);
  EXPECT_EQ(rankNamedIn("this rank ended with ValueError"), std::nullopt);
  EXPECT_EQ(rankNamedIn("crank 3"), std::nullopt);
  EXPECT_EQ(rankNamedIn("rank 99999999999"), std::nullopt);
}

}  // namespace
}  // namespace sluice::flight
