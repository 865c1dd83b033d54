#include <tools/sim/faults.h>

#include <gtest/gtest.h>

namespace sluice::sim {
namespace {

using namespace std::chrono_literals;

TEST(Faults, AreReadFromAList) {
  EXPECT_TRUE(parseFaults("").value().empty());
  EXPECT_EQ(
      parseFaults("cut:3@200ms+50ms, lose:5@1s,rate:4=100mbit@1s+5s").value(),
      (std::vector<PlannedFault>{{PlannedFault::Kind::kLinkCut, 3, 200ms, 50ms, {}},
                                 {PlannedFault::Kind::kHostLost, 5, 1s, 0s, {}},
                                 {PlannedFault::Kind::kLinkRate, 4, 1s, 5s, Rate{100'000'000}}}));
  for (const char* text : {"cut", "cut:3@1s", "cut:3=1gbit@1s+1s", "cut:3@1s+", "lose:3@1s+1s",
                           "lose:@1s", "lose:-1@1s", "burn:3@1s", "rate:3@1s+1s", "rate:3=1gbit@1s",
                           "rate:3=0gbit@1s+1s", "rate:3=fast@1s+1s"})
    EXPECT_EQ(parseFaults(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(Faults, TheSeedDrawsCuts) {
  EXPECT_EQ(drawCuts(1, 5, 8, 1s), drawCuts(1, 5, 8, 1s));
  EXPECT_NE(drawCuts(1, 5, 8, 1s), drawCuts(2, 5, 8, 1s));
  for (const PlannedFault& cut : drawCuts(3, 100, 8, 1s)) {
    EXPECT_LT(cut.host, 8U);
    EXPECT_LT(cut.at, 1s);
  }
}

}  // namespace
}  // namespace sluice::sim
