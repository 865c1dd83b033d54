#include <sluice/observe/trace/recorder.h>

#include <thread>

#include <gtest/gtest.h>

namespace sluice::trace {
namespace {

StageEvent eventOf(uint64_t step) {
  return {Stage::kReady, Step{step}, TensorId{0}, SliceId{0}, Rank{0}, TimePoint(Duration(step))};
}

TEST(Recorder, KeepsTheLatestInOrderAndCountsTheRest) {
  for (const size_t happened : {0U, 2U, 3U, 4U, 7U}) {
    Recorder recorder(3);
    for (uint64_t step = 0; step < happened; ++step) {
      recorder.onStage(eventOf(step));
      recorder.onWait({TensorId{0}, Step{step}, {}, {}});
    }
    RankTrace trace;
    recorder.addTo(trace);
    const size_t kept = std::min<size_t>(happened, 3);
    ASSERT_EQ(trace.events.size(), kept);
    ASSERT_EQ(trace.waits.size(), kept);
    EXPECT_EQ(trace.lost, 2 * (happened - kept));
    for (size_t i = 0; i < kept; ++i) {
      EXPECT_EQ(index(trace.events[i].step), happened - kept + i);
      EXPECT_EQ(index(trace.waits[i].step), happened - kept + i);
    }
  }
}

TEST(Recorder, LosesNothingOfSeveralThreads) {
  Recorder recorder(10'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t step = 0; step < 1000; ++step) recorder.onStage(eventOf(step));
    });
  }
  for (auto& thread : threads) thread.join();
  RankTrace trace;
  recorder.addTo(trace);
  EXPECT_EQ(trace.events.size(), 4000);
}

}  // namespace
}  // namespace sluice::trace
