#include <tools/probe/rounds.h>

#include <gtest/gtest.h>

#include <set>

namespace sluice::probe {
namespace {

TEST(Rounds, EveryPairMeetsOnceAndNobodyTwiceInARound) {
  for (const uint32_t ranks : {2U, 3U, 4U, 5U, 8U, 9U}) {
    std::set<std::pair<uint32_t, uint32_t>> met;
    for (const uint32_t round : chooseRounds(ranks, 100)) {
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const auto partner = partnerOf(rank, round, ranks);
        if (!partner) continue;
        EXPECT_LT(*partner, ranks);
        EXPECT_EQ(partnerOf(*partner, round, ranks), rank);
        EXPECT_TRUE(met.emplace(rank, *partner).second) << rank << " " << *partner;
      }
    }
    EXPECT_EQ(met.size(), size_t{ranks} * (ranks - 1));
  }
}

TEST(Rounds, ManyRanksMeetInAFewRoundsOnly) {
  EXPECT_EQ(chooseRounds(64, 8).size(), 8U);
  EXPECT_EQ(chooseRounds(2, 8).size(), 1U);
  EXPECT_TRUE(chooseRounds(1, 8).empty());
}

}  // namespace
}  // namespace sluice::probe
