// Gradients that are staged straight into the packing of their group, and means that leave from
// there: no rank copies them in between, and a mean stays until the next step of its tensor,
// however late it is taken.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/options.h>
#include <sluice/data/gate/gates.h>

namespace sluice::algorithms {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kStagedRanks = 2;
constexpr uint32_t kStagedTensors = 4;
constexpr uint64_t kStagedElements = 300;

// One rank whose tensors are on a device. The test is the stager: it writes gradients to their
// targets, and takes a mean only when the tensor's next step begins.
class StagedRank final : public fabric::Receiver, public ResultSink {
 public:
  StagedRank(const plan::Plan& plan, Rank rank, const base::Config& config,
             fabric::LoopbackHub& hub, const Algorithm& algorithm)
      : memory_(plan.model().tensors.size()) {
    gates_ = std::make_unique<gate::Gates>(gate::tensorNames(plan.model()), gate::WaitOptions{},
                                           [](auto...) {});
    fabric_ = hub.join(rank, loop_, *this);
    strategy_ = algorithm
                    .make({.plan = plan,
                           .fabric = *fabric_,
                           .gates = *gates_,
                           .memory = memory_,
                           .update = optimizer::parseOptimizerSpec("mean-gradient").value(),
                           .parameters = {},
                           .config = config,
                           .observer = nullptr,
                           .results = this})
                    .value();
  }
  ~StagedRank() override {
    loop_.post([this] { fabric_.reset(); });
    loop_.runReady();
  }

  base::ManualLoop& loop() { return loop_; }
  bool isOpen(TensorId tensor) const { return gates_->isOpen(tensor); }
  // Returns how many groups have travelled since the last call.
  size_t takeGroups() { return std::exchange(groups_, {}).size(); }

  // The gradient of the tensor's next step: `value`, `value` + 1, ...
  void backward(TensorId tensor, float value) {
    const Step step = gates_->close(tensor).value();
    loop_.post([this, tensor, step, value] {
      ASSERT_TRUE(strategy_->stagingTargets().has(tensor));
      const auto target = strategy_->stagingTargets().targetFor(tensor);
      ASSERT_EQ(target.size(), kStagedElements * sizeof(float));
      std::vector<float> gradient(kStagedElements);
      std::iota(gradient.begin(), gradient.end(), value);
      std::ranges::copy(std::as_bytes(std::span(gradient)), target.begin());
      staged_.insert(target.data());
      memory_[index(tensor)].gradient = target;
      strategy_->contribute({tensor, step, /*hasGradient=*/true});
    });
  }
  void absent(TensorId tensor) {
    const Step step = gates_->close(tensor).value();
    loop_.post([this, tensor, step] { strategy_->contribute({tensor, step, false}); });
  }

  // Takes the tensor's mean of its last step; empty if no mean came.
  std::vector<float> take(TensorId tensor) {
    const auto node = means_.extract(tensor);
    if (node.empty()) return {};
    std::vector<float> mean(node.mapped().bytes.size() / sizeof(float));
    std::ranges::copy(node.mapped().bytes, std::as_writable_bytes(std::span(mean)).begin());
    return mean;
  }
  // Returns how many means were reported elsewhere than where a gradient had been staged.
  size_t copied() const { return copied_; }
  size_t reported() const { return reported_; }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    if (index(header.tensor) < kStagedTensors) groups_.insert(header.tensor);
    return strategy_->onMessage(from, lane, header);
  }
  void onPeerLost(Rank, const Status& why) override { gates_->fail(why); }
  void onPeerLeft(Rank) override {}

  void onResult(const SliceResult& result) override {
    if (result.firstByte > 0) return;  // the first slice speaks for the tensor
    means_[result.tensor] = result.whole;
    ++reported_;
    copied_ += staged_.contains(result.whole.bytes.data()) ? 0 : 1;
  }
  void onNoResult(TensorId tensor, Step /*step*/) override { means_.erase(tensor); }

 private:
  std::vector<TensorMemory> memory_;
  base::ManualLoop loop_;
  std::unique_ptr<gate::Gates> gates_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::set<const std::byte*> staged_;  // the targets that gradients were written to
  std::map<TensorId, ResultBytes> means_;
  std::set<TensorId> groups_;  // that messages were about
  size_t reported_ = 0;
  size_t copied_ = 0;
};

class StagedWorld final {
 public:
  StagedWorld(const std::string& algorithm, base::Config config)
      : config_(std::move(config)), hub_(kStagedRanks) {
    plan::PlanSpec spec;
    for (uint32_t t = 0; t < kStagedTensors; ++t)
      spec.model.tensors.push_back({"t" + std::to_string(t), kStagedElements, DType::kF32});
    spec.roles = plan::parseRoles("all", kStagedRanks).value();
    const Algorithm& chosen = *readAlgorithm(algorithm, config_).value();
    spec.strategy = chosen.name;
    EXPECT_TRUE(chosen.choose(config_, spec).isOk());
    plan_.emplace(plan::Plan::make(std::move(spec)).value());
    for (uint32_t r = 0; r < kStagedRanks; ++r)
      ranks_.push_back(std::make_unique<StagedRank>(*plan_, Rank{r}, config_, hub_, chosen));
  }

  StagedRank& rank(uint32_t r) { return *ranks_[r]; }

  // A step in which each tensor's backward takes so long. Before it, the mean that the tensor has
  // is taken: that of the gradients from `expected` on. Rank 1 has no gradient of tensor 2, but in
  // the first two steps, with values up to 10.
  void step(float value, std::optional<float> expected, Duration backward = {}) {
    for (uint32_t t = kStagedTensors; t-- > 0;) {
      const TensorId tensor{t};
      for (uint32_t r = 0; r < kStagedRanks; ++r) {
        rank(r).loop().stall(backward);
        ASSERT_TRUE(rank(r).isOpen(tensor));
        const auto mean = rank(r).take(tensor);
        if (expected) {
          expectMean(mean, *expected, /*isHalf=*/t == kHalf && *expected > 10);
        } else {
          EXPECT_TRUE(mean.empty());
        }
        if (t == kHalf && r == 1 && value > 10) {
          rank(r).absent(tensor);
        } else {
          rank(r).backward(tensor, value + 4 * static_cast<float>(r));
        }
      }
      runAll();
    }
  }

 private:
  static constexpr uint32_t kHalf = 2;

  static void expectMean(const std::vector<float>& mean, float value, bool isHalf) {
    ASSERT_EQ(mean.size(), kStagedElements);
    for (size_t i = 0; i < mean.size(); ++i) {
      const float first = value + static_cast<float>(i);
      ASSERT_EQ(mean[i], isHalf ? first / 2 : first + 2) << i;
    }
  }
  void runAll() {
    for (bool ran = true; ran;) {
      std::ranges::shuffle(order_, random_);
      ran = false;
      for (const uint32_t r : order_) ran = rank(r).loop().runOne() || ran;
    }
  }

  base::Config config_;
  std::optional<plan::Plan> plan_;
  fabric::LoopbackHub hub_;
  std::vector<std::unique_ptr<StagedRank>> ranks_;
  std::vector<uint32_t> order_{0, 1};
  std::mt19937 random_{7};
};

class StagingTargetsOf : public testing::TestWithParam<const char*> {};

TEST_P(StagingTargetsOf, NothingIsCopiedBetweenTheStagerAndTheNetwork) {
  StagedWorld world(GetParam(), {});
  constexpr size_t kSteps = 6;
  for (size_t step = 0; step < kSteps; ++step) {
    const float value = 10 * static_cast<float>(step);
    world.step(value, step > 0 ? std::optional(value - 10) : std::nullopt);
  }
  for (uint32_t r = 0; r < kStagedRanks; ++r) {
    EXPECT_EQ(world.rank(r).reported(), kSteps * kStagedTensors);
    EXPECT_EQ(world.rank(r).copied(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(AllReduces, StagingTargetsOf,
                         testing::Values("allreduce", "wfbp", "mgwfbp", "mgp3"));

TEST(StagingTargets, DelayedMeansLeaveFromThePackingOfTheirStep) {
  StagedWorld world("pipe", {});
  for (int step = 0; step < 6; ++step) {
    const float value = 10 * static_cast<float>(step);
    world.step(value, step > 1 ? std::optional(value - 20) : std::nullopt);
  }
  for (uint32_t r = 0; r < kStagedRanks; ++r) {
    EXPECT_EQ(world.rank(r).reported(), 5 * kStagedTensors);
    EXPECT_EQ(world.rank(r).copied(), 0U);
  }
}

// Means that nobody has taken yet outlive the groups in which they were reduced.
TEST(StagingTargets, MeansStayWhenGroupsChange) {
  base::Config config;
  const std::pair<const base::Option*, const char*> options[] = {
      {&option::kReductionStart, "1ms"},
      {&option::kReductionRate, "100gbit"},
      {&option::kComputeTime, "100ms"},
      {&option::kReplanSteps, "5"}};
  for (const auto& [option, value] : options) ASSERT_TRUE(config.set(*option, value).isOk());
  StagedWorld world("mgwfbp", std::move(config));
  for (int step = 0; step < 12; ++step) {
    const float value = 10 * static_cast<float>(step);
    world.step(value, step > 0 ? std::optional(value - 10) : std::nullopt, 50us);
    EXPECT_EQ(world.rank(0).takeGroups(), step < 5 ? 4U : 1U) << step;
  }
}

TEST(StagingTargets, AreOnlyForGradientsThatTravelAsTheyAre) {
  const auto has = [](std::string_view algorithm, DType dtype, std::string_view update) {
    SteppedWorld world(algorithm, "all", 2, {{"a", 4, dtype}}, update);
    return world.ranks()[0]->strategy().stagingTargets().has(TensorId{0});
  };
  EXPECT_TRUE(has("allreduce", DType::kBF16, "mean-gradient"));
  EXPECT_TRUE(has("allreduce", DType::kF32, "sgd:lr=1"));
  EXPECT_FALSE(has("allreduce", DType::kBF16, "sgd:lr=1"));  // travels as f32
  EXPECT_FALSE(has("sluice", DType::kF32, "mean-gradient"));
}

}  // namespace
}  // namespace sluice::algorithms
