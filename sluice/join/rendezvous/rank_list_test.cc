#include <sluice/join/rendezvous/rank_list.h>

#include <vector>

#include <gtest/gtest.h>

namespace sluice::rendezvous {
namespace {

TEST(RankList, IsShort) {
  const auto describe = [](const std::vector<uint32_t>& numbers) {
    std::vector<Rank> ranks;
    for (const uint32_t number : numbers) ranks.push_back(Rank{number});
    return describeRanks(ranks);
  };
  EXPECT_EQ(describe({3}), "rank 3");
  EXPECT_EQ(describe({3, 5, 6, 7}), "ranks 3, 5-7");
  EXPECT_EQ(describe({0, 1}), "ranks 0-1");
  EXPECT_EQ(describe({0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26}),
            "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 2 more");
}

}  // namespace
}  // namespace sluice::rendezvous
