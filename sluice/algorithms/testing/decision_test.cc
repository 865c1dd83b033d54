// Updates that wait for the training thread's word: before it no parameter changes anywhere,
// whatever the order of arrival; a dropped step leaves no trace.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/testing/stepped_world.h>

namespace sluice::algorithms {
namespace {

class DecisionTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void handOver(SteppedRank& rank) {
    for (uint32_t t = 3; t-- > 0;) {
      const std::vector<float> ones(plan_.model().tensors[t].elements, 1);
      rank.gradientReady(TensorId{t}, std::as_bytes(std::span(ones)));
    }
  }
  static void decide(SteppedRank& rank, Decision decision) {
    rank.loop().post([&rank, decision] { EXPECT_TRUE(rank.strategy().decide(decision).isOk()); });
  }
  void expectEverywhere(SteppedRank& rank, float value) {
    for (uint32_t t = 0; t < 3; ++t) {
      const std::vector<float> wanted(plan_.model().tensors[t].elements, value);
      EXPECT_TRUE(std::ranges::equal(rank.result(TensorId{t}), std::as_bytes(std::span(wanted))))
          << value;
    }
  }

  SteppedWorld world_{std::get<0>(GetParam()),
                      std::get<1>(GetParam()),
                      3,
                      {{"a", 50, DType::kF32}, {"b", 1, DType::kF32}, {"c", 4, DType::kF32}},
                      "sgd:lr=1",
                      /*updatesWaitForWord=*/true};
  const plan::Plan& plan_ = world_.plan();
  std::vector<std::unique_ptr<SteppedRank>>& ranks_ = world_.ranks();
};

TEST_P(DecisionTest, NothingChangesBeforeTheRanksOwnWord) {
  std::mt19937 random(7);
  float expected = 0;
  for (uint64_t step = 0; step < 8; ++step) {
    for (const auto& rank : ranks_) handOver(*rank);
    runShuffled(ranks_, random);
    const auto decision = step % 3 == 1 ? Decision::kDrop : Decision::kUpdate;
    const float after = decision == Decision::kUpdate ? expected - 1 : expected;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t late = r; late < ranks_.size(); ++late) expectEverywhere(*ranks_[late], expected);
      decide(*ranks_[r], decision);
      runShuffled(ranks_, random);
    }
    expected = after;
    for (const auto& rank : ranks_) {
      for (uint32_t t = 0; t < 3; ++t) {
        EXPECT_TRUE(rank->gates().isOpen(TensorId{t}))
            << rank->strategy().describeWait(TensorId{t});
        EXPECT_EQ(rank->gates().isEmpty(TensorId{t}), decision == Decision::kDrop);
      }
      expectEverywhere(*rank, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecisionTest,
                         testing::Combine(testing::Values("kvstore", "slicing", "p3", "sluice"),
                                          testing::Values("all", "1", "2")));

}  // namespace
}  // namespace sluice::algorithms
