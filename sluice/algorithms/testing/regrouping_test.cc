#include <sluice/algorithms/reduction/regrouping.h>

#include <random>

#include <gtest/gtest.h>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

struct Instance {
  Model model;
  timing::Costs costs;
};

Instance someInstance(std::mt19937& random) {
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  Instance instance;
  instance.costs.wire = {.start = between(0, 5e-3), .perByte = between(1e-9, 1e-7)};
  const size_t layers = 2 + random() % 20;
  for (size_t l = 0; l < layers; ++l) {
    const uint64_t elements = 1 + random() % 100'000;
    instance.model.tensors.push_back({std::to_string(l), elements, DType::kF32});
    const double backward = between(0, 5e-3);
    instance.costs.layers.push_back({backward / 2, backward, static_cast<double>(4 * elements)});
  }
  return instance;
}

timing::Costs withNoise(timing::Costs costs, double share, std::mt19937& random) {
  std::uniform_real_distribution<double> noise(1 - share, 1 + share);
  for (auto& layer : costs.layers) {
    layer.forward *= noise(random);
    layer.backward *= noise(random);
  }
  costs.wire = {.start = costs.wire.start * noise(random),
                .perByte = costs.wire.perByte * noise(random)};
  return costs;
}

base::Config withRule(const char* rule) {
  base::Config config;
  EXPECT_TRUE(config.set(option::kMerge, rule).isOk());
  return config;
}

// Noise of two per cent each way moves no tensor: with costs that differ so little, the best
// groups for one are within 1.02/0.98 of the best for the other.
TEST(Regrouping, SmallNoiseMovesNoTensor) {
  std::mt19937 random(1);
  const base::Config config = withRule("exact");
  for (int n = 0; n < 2'000; ++n) {
    const Instance instance = someInstance(random);
    const auto groups = mergeTensors(config, instance.costs);
    ASSERT_FALSE(regroup(config, withNoise(instance.costs, 0.02, random), instance.model, groups))
        << n;
  }
}

// Groups made for other times are changed if that pays, and are then those that would be made now.
TEST(Regrouping, DriftLeadsToTheGroupsOfThePresentTimes) {
  for (const char* rule : {"exact", "paper"}) {
    const base::Config config = withRule(rule);
    std::mt19937 random(2);
    int changes = 0;
    for (int n = 0; n < 2'000; ++n) {
      const Instance instance = someInstance(random);
      const timing::Costs now = withNoise(instance.costs, 0.9, random);
      const auto regrouping =
          regroup(config, now, instance.model, mergeTensors(config, instance.costs));
      if (!regrouping) continue;
      ++changes;
      ASSERT_EQ(regrouping->groups, mergeTensors(config, now));
      ASSERT_LE(regrouping->seconds, 0.95 * regrouping->secondsBefore);
      ASSERT_FALSE(regroup(config, now, instance.model, regrouping->groups));
    }
    EXPECT_GT(changes, 100) << rule;
  }
}

TEST(Regrouping, GroupsAreOfOneType) {
  Model model{{{"a", 10, DType::kF32}, {"b", 10, DType::kBF16}}};
  const timing::Costs costs{.layers = {{1e-6, 1e-6, 40}, {1e-6, 1e-6, 20}},
                            .wire = {.start = 1, .perByte = 0}};
  const std::vector<timing::Group> each{{0, 0}, {1, 1}};
  EXPECT_FALSE(regroup(base::Config(), costs, model, each));  // though one message would do
  model.tensors[1].dtype = DType::kF32;
  EXPECT_TRUE(regroup(base::Config(), costs, model, each));
}

}  // namespace
}  // namespace sluice::algorithms
