#include <tools/trace/torch_ranks.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/observe/trace/testing/small_job.h>

namespace sluice::trace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// The small job, whose ranks' wall clocks were at `wall` when their steady clocks were at 0.
std::vector<RankTrace> jobAt(Duration wall) {
  auto traces = smallJob();
  for (auto& trace : traces) trace.wall = {wall, 10us};
  return traces;
}

TorchProfile profileOf(uint32_t rank, Duration first, Duration last) {
  return {.path = "p.json", .rank = Rank{rank}, .first = first, .last = last, .events = 1};
}

TEST(TorchProfiles, LieBesideTheTracesOfTheirRanks) {
  const auto traces = jobAt(1000s);
  const std::vector<TorchProfile> both{profileOf(0, 1000s, 1000s + 20ms),
                                       profileOf(1, 1000s + 30ms, 1001s)};
  EXPECT_TRUE(checkRanks(both, traces).isOk());
  EXPECT_TRUE(checkRanks({}, traces).isOk());
  EXPECT_EQ(momentOf(traces[0], 1000s + 20ms), msAt(20));

  auto onOneClock = traces;
  shift(onOneClock[1], -5ms);
  EXPECT_EQ(momentOf(onOneClock[1], 1000s + 20ms), msAt(15));
}

TEST(TorchProfiles, ThatHaveNoPlaceAreRefused) {
  const auto traces = jobAt(1000s);
  const auto good = profileOf(0, 1000s, 1000s + 20ms);
  auto nameless = good;
  nameless.rank.reset();
  auto old = traces;
  old[0].wall.reset();
  const auto says = [](const std::vector<TorchProfile>& profiles,
                       const std::vector<RankTrace>& of) {
    const Status status = checkRanks(profiles, of);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(says({nameless}, traces), HasSubstr("write --torch RANK=p.json"));
  EXPECT_THAT(says({good, good}, traces), HasSubstr("are both of rank 0"));
  EXPECT_THAT(says({profileOf(7, 1000s, 1001s)}, traces), HasSubstr("is of rank 7, which has no"));
  EXPECT_THAT(says({good}, old), HasSubstr("rank 0 has no wall clock"));
  EXPECT_THAT(says({profileOf(0, 1002s + 50ms, 1003s)}, traces), HasSubstr("is 2.0 s after the"));
  EXPECT_THAT(says({profileOf(0, 900s, 997s + 10ms)}, traces), HasSubstr("is 3.0 s before the"));
}

}  // namespace
}  // namespace sluice::trace
