#include <tools/trace/arrows.h>

#include <gtest/gtest.h>

#include <sluice/observe/trace/testing/small_job.h>

namespace sluice::trace {
namespace {

using namespace std::chrono_literals;

std::vector<Arrow> arrowsOf(const std::vector<RankTrace>& traces) {
  return arrowsBetween(traces, Journeys(traces));
}

void expectEnd(const ArrowEnd& end, Rank rank, Stage stage, TimePoint at) {
  EXPECT_EQ(end.rank, rank);
  EXPECT_EQ(end.stage, stage);
  EXPECT_EQ(end.at, at);
}

TEST(Arrows, GoToTheServerAndBack) {
  const auto arrows = arrowsOf(smallJob());
  ASSERT_EQ(arrows.size(), 2);
  expectEnd(arrows[0].from, Rank{0}, Stage::kPush, msAt(14));
  expectEnd(arrows[0].to, Rank{1}, Stage::kCollect, msAt(20));
  expectEnd(arrows[1].from, Rank{1}, Stage::kPublish, msAt(24));
  expectEnd(arrows[1].to, Rank{0}, Stage::kApplied, msAt(33));
  for (const Arrow& arrow : arrows) {
    EXPECT_EQ(arrow.from.peer, arrow.to.rank);
    EXPECT_EQ(arrow.to.peer, arrow.from.rank);
  }
}

TEST(Arrows, OfADeviceEndWhereTheCopyToItBegins) {
  const auto arrows = arrowsOf(smallDeviceJob());
  ASSERT_EQ(arrows.size(), 2);
  expectEnd(arrows[1].to, Rank{0}, Stage::kStageIn, msAt(33));
}

TEST(Arrows, HaveBothEndsOrAreNone) {
  auto traces = smallJob();
  traces.pop_back();
  EXPECT_TRUE(arrowsOf(traces).empty());
  traces = smallJob();
  std::erase_if(traces[1].events, [](const auto& e) { return e.stage == Stage::kCollect; });
  EXPECT_EQ(arrowsOf(traces).size(), 1);
}

TEST(Arrows, DoNotGoBackInTime) {
  auto traces = smallJob();
  shift(traces[1], -8ms);  // its clock is wrong by more than the push took
  const auto arrows = arrowsOf(traces);
  ASSERT_EQ(arrows.size(), 2);
  EXPECT_EQ(arrows[0].from.at, msAt(14));
  EXPECT_EQ(arrows[0].to.at, msAt(14));
}

TEST(Arrows, OfASliceThatIsSentTwiceStartAtTheFirst) {
  auto traces = smallJob();
  auto again = traces[0].events[2];
  again.at = msAt(30);
  traces[0].events.push_back(again);
  const auto arrows = arrowsOf(traces);
  ASSERT_EQ(arrows.size(), 2);
  EXPECT_EQ(arrows[0].from.at, msAt(14));
}

TEST(Arrows, HaveMarksThatDoNotOverlapOnATrack) {
  auto traces = smallJob();
  RankTrace third = traces[0];
  third.rank = Rank{2};
  for (auto& event : third.events) {
    if (event.peer == Rank{0}) event.peer = Rank{2};
  }
  auto collect = traces[1].events[2];
  collect.peer = Rank{2};
  collect.at += 400ns;
  traces[1].events.push_back(collect);
  traces.push_back(third);
  const auto arrows = arrowsOf(traces);
  ASSERT_EQ(arrows.size(), 3);
  EXPECT_EQ(arrows[0].to.length, 400ns);
  EXPECT_EQ(arrows[2].to.length, 1us);
  EXPECT_EQ(arrows[2].from.rank, Rank{2});
}

}  // namespace
}  // namespace sluice::trace
