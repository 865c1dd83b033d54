#include <sluice/session/other_ranks.h>

#include <map>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/base/testing/manual_clock.h>

namespace sluice::session {
namespace {

using namespace std::chrono_literals;
using base::Doing;

class ToldPulse final : public fabric::Pulse {
 public:
  explicit ToldPulse(std::map<uint32_t, Word> words) : words_(std::move(words)) {}
  void exchangeWith(Rank /*peer*/) override {}
  std::optional<Word> lastWord(Rank peer) const override {
    const auto found = words_.find(index(peer));
    return found == words_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  const std::map<uint32_t, Word> words_;
};

const TimePoint kNow(1h);

fabric::Pulse::Word word(Doing doing, uint64_t step, Duration since, Duration ago = 0s) {
  return {.heard = kNow - ago, .busy = {}, .training = {doing, step, since}};
}

std::string describe(std::map<uint32_t, fabric::Pulse::Word> words, uint32_t world = 8) {
  const ToldPulse pulse(std::move(words));
  return describeOtherRanks(&pulse, Rank{0}, world, kNow);
}

TEST(OtherRanks, OneIsNamedWithItsPlaceAndTime) {
  EXPECT_EQ(describe({{1, word(Doing::kMean, 0, 598s)}}),
            "rank 1 has been in sluice.mean() for 598 s");
  EXPECT_EQ(describe({{1, word(Doing::kForward, 4, 2s, 300ms)}}),
            "rank 1 has been in the forward pass of step 4 for 2.3 s");
}

TEST(OtherRanks, TheSamePlaceIsSaidOnceAndThoseThatWaitComeLast) {
  EXPECT_EQ(describe({{1, word(Doing::kGate, 3, 4s)},
                      {2, word(Doing::kGate, 3, 9s)},
                      {3, word(Doing::kUserCode, 3, 12s)}}),
            "rank 3 has been in user code of step 3 for 12 s; ranks 1-2 have been waiting for "
            "results of step 3 for 9.0 s");
}

TEST(OtherRanks, NothingIsSaidOfARankThatHasSaidNothingNorOfThisOne) {
  EXPECT_EQ(describe({}), "");
  EXPECT_EQ(describe({{0, word(Doing::kMean, 0, 1s)}, {1, word(Doing::kUnknown, 0, 1s)}}), "");
  EXPECT_EQ(describeOtherRanks(nullptr, Rank{0}, 2, kNow), "");
}

TEST(OtherRanks, ManyPlacesAreCut) {
  std::map<uint32_t, fabric::Pulse::Word> words;
  for (uint32_t r = 1; r < 8; ++r) words[r] = word(Doing::kForward, r, 1s);
  const std::string text = describe(words);
  EXPECT_TRUE(
      text.ends_with("rank 4 has been in the forward pass of step 4 for 1.0 s; 3 more "
                     "ranks are elsewhere"))
      << text;
}

TEST(LongWait, IsReportedEachTimeThatItHasTakenTwiceAsLong) {
  base::ManualClock clock;
  std::vector<Duration> reports;
  LongWait wait(clock, 10s, [&](Duration waited) { reports.push_back(waited); });
  for (int second = 0; second < 90; ++second) {
    wait.look();
    clock.advance(1s);
  }
  EXPECT_EQ(reports, (std::vector<Duration>{10s, 20s, 40s, 80s}));
}

}  // namespace
}  // namespace sluice::session
