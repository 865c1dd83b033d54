// Updates that wait for the training thread's word: before it no parameter changes anywhere, whatever the
// order of arrival; a dropped step leaves no trace.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/base/options.h>
#include <sluice/strategy/stepped_world.h>

namespace sluice::strategy {
namespace {

class DecisionTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const auto& [name, servers] = GetParam();
    ASSERT_TRUE(config_.set(option::kSliceElements, "3").isOk());
    const Algorithm& algorithm = *findAlgorithm(name).value();
    plan::PlanSpec spec;
    spec.model.tensors = {{"a", 50, DType::kF32}, {"b", 1, DType::kF32}, {"c", 4, DType::kF32}};
    spec.roles = plan::parseRoles(servers, kWorld).value();
    spec.strategy = name;
    ASSERT_TRUE(algorithm.choose(config_, spec).isOk());
    plan_ = std::make_unique<plan::Plan>(plan::Plan::make(std::move(spec)).value());
    std::vector<std::vector<std::byte>> zeros;
    for (const auto& tensor : plan_->model().tensors) zeros.emplace_back(tensor.bytes());
    for (uint32_t r = 0; r < kWorld; ++r) {
      ranks_.push_back(std::make_unique<SteppedRank>(*plan_, Rank{r}, update_, zeros, config_, hub_,
                                                     algorithm,
                                                     /*updatesWaitForWord=*/true));
    }
  }

  void handOver(SteppedRank& rank) {
    for (uint32_t t = 3; t-- > 0;) {
      const std::vector<float> ones(plan_->model().tensors[t].elements, 1);
      rank.gradientReady(TensorId{t}, std::as_bytes(std::span(ones)));
    }
  }
  static void decide(SteppedRank& rank, Decision decision) {
    rank.loop().post([&rank, decision] { EXPECT_TRUE(rank.strategy().decide(decision).isOk()); });
  }
  void expectEverywhere(SteppedRank& rank, float value) {
    for (uint32_t t = 0; t < 3; ++t) {
      const std::vector<float> wanted(plan_->model().tensors[t].elements, value);
      EXPECT_TRUE(std::ranges::equal(rank.result(TensorId{t}), std::as_bytes(std::span(wanted)))) << value;
    }
  }

  static constexpr uint32_t kWorld = 3;
  Config config_;
  const shard::OptimizerSpec update_ = shard::parseOptimizerSpec("sgd:lr=1").value();
  std::unique_ptr<plan::Plan> plan_;
  fabric::LoopbackHub hub_{kWorld};
  std::vector<std::unique_ptr<SteppedRank>> ranks_;
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
        EXPECT_TRUE(rank->gates().isOpen(TensorId{t})) << rank->strategy().describeWait(TensorId{t});
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
}  // namespace sluice::strategy
