#include <tools/trace/one_clock.h>

#include <gtest/gtest.h>

namespace sluice::trace {
namespace {

using namespace std::chrono_literals;

// Ranks whose clocks all show 100 s when the same thing happens at rank 0.
std::vector<RankTrace> ranks(const std::vector<Duration>& ahead) {
  std::vector<RankTrace> traces;
  for (uint32_t r = 0; r < ahead.size(); ++r) {
    RankTrace trace{.rank = Rank{r}};
    trace.waits.push_back(
        {TensorId{0}, Step{0}, TimePoint(100s + ahead[r]), TimePoint(101s + ahead[r])});
    traces.push_back(trace);
  }
  return traces;
}

TEST(OneClock, MovesEveryTraceToTheFirstOnesClock) {
  auto traces = ranks({0s, 5s, -3s});
  traces[0].clocks[Rank{1}] = {5s, 2ms};
  traces[2].clocks[Rank{0}] = {3s, 4ms};  // rank 2's view of rank 0, not the other way round
  const auto shifts = putOnOneClock(traces).value();
  for (const auto& trace : traces)
    EXPECT_EQ(trace.waits[0].from, TimePoint(100s)) << index(trace.rank);
  EXPECT_EQ(shifts[1].ahead, 5s);
  EXPECT_EQ(shifts[1].uncertainty, 1ms);
  EXPECT_EQ(shifts[2].ahead, -3s);
  EXPECT_EQ(shifts[2].uncertainty, 2ms);
}

TEST(OneClock, TakesTheQuickestWay) {
  auto traces = ranks({0s, 5s, 7s});
  traces[0].clocks[Rank{1}] = {5s, 1ms};
  traces[1].clocks[Rank{2}] = {2s, 1ms};
  traces[0].clocks[Rank{2}] = {9s, 50ms};  // slow, and wrong
  EXPECT_EQ(putOnOneClock(traces).value()[2].ahead, 7s);
}

TEST(OneClock, NamesARankThatNobodyKnows) {
  auto traces = ranks({0s, 0s});
  EXPECT_EQ(putOnOneClock(traces).status().message().substr(0, 26), "rank 1's clock is unknown:");
}

}  // namespace
}  // namespace sluice::trace
