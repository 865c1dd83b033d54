#include <sluice/session/rank_comparison.h>

#include <gtest/gtest.h>

namespace sluice::session {
namespace {

using Hashes = std::vector<std::vector<uint64_t>>;

TEST(RankComparison, NamesTheFirstTensorAndTheRanksThatAreNotLikeTheMost) {
  EXPECT_EQ(findDifference(Hashes{{1, 2, 3}, {1, 2, 3}}), std::nullopt);
  EXPECT_EQ(findDifference(Hashes{}), std::nullopt);
  // Of two ranks, the second is the one that differs.
  EXPECT_EQ(findDifference(Hashes{{1, 2, 3}, {1, 7, 8}}),
            (RankDifference{
                .first = 1, .count = 1, .ranks = {Rank{1}}, .others = {Rank{0}}, .details = {}}));
  // Most ranks are right, also if rank 0 is not among them.
  EXPECT_EQ(findDifference(Hashes{{9, 2}, {1, 2}, {1, 2}}),
            (RankDifference{.first = 0,
                            .count = 1,
                            .ranks = {Rank{0}},
                            .others = {Rank{1}, Rank{2}},
                            .details = {}}));
}

TEST(RankComparison, EveryByteCounts) {
  std::vector<std::byte> bytes(1000);
  const uint64_t before = hashOf(bytes);
  EXPECT_EQ(hashOf(bytes), before);
  bytes.back() = std::byte{1};
  EXPECT_NE(hashOf(bytes), before);
  EXPECT_NE(hashOf(std::span(bytes).first(999)), hashOf(bytes));
}

}  // namespace
}  // namespace sluice::session
