#include <sluice/data/timing/merging.h>

#include <algorithm>

#include <gtest/gtest.h>

#include <sluice/data/timing/link_model.h>
#include <sluice/data/timing/testing/random_layers.h>

namespace sluice::timing {
namespace {

// Calls visit(groups) for each of the 2^(L-1) ways to cut L layers into runs.
template <typename Visit>
void forEveryPartition(size_t layers, Visit visit) {
  for (size_t cuts = 0; cuts < size_t{1} << (layers - 1); ++cuts) {
    std::vector<Group> groups{{0, 0}};
    for (size_t l = 1; l < layers; ++l) {
      if ((cuts >> (l - 1) & 1) != 0) {
        groups.push_back({l, l});
      } else {
        groups.back().last = l;
      }
    }
    visit(groups);
  }
}

TEST(Merging, ExactIsAsGoodAsTheBestOfAllPartitionsAndAlgorithm1IsNot) {
  std::mt19937_64 random(1);
  constexpr int kInstances = 3'000;
  int suboptimal = 0;
  for (int i = 0; i < kInstances; ++i) {
    const auto [layers, wire] = testing::anyInstance(random, 9);
    double best = 1e300;
    forEveryPartition(layers.size(), [&](const std::vector<Group>& groups) {
      best = std::min(best, iterationSeconds(layers, wire, groups));
    });
    const auto exact = mergeExactly(layers, wire);
    EXPECT_NEAR(exact.seconds, best, 1e-9) << "instance " << i;
    EXPECT_NEAR(exact.seconds, iterationSeconds(layers, wire, exact.groups), 1e-9)
        << "instance " << i;
    const auto published = mergeByAlgorithm1(layers, wire);
    EXPECT_GE(published.seconds, best - 1e-9) << "instance " << i;
    suboptimal += published.seconds > best * (1 + 1e-9) ? 1 : 0;
  }
  EXPECT_GT(suboptimal, kInstances / 20);
}

TEST(Merging, WithPriorityIsAsGoodAsTheBestOfAllPartitions) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 3'000; ++i) {
    const auto [layers, wire] = testing::anyInstance(random, 9);
    double best = 1e300;
    forEveryPartition(layers.size(), [&](const std::vector<Group>& groups) {
      best = std::min(best, prioritySeconds(layers, wire, groups));
    });
    const auto merging = mergeWithPriority(layers, wire);
    EXPECT_NEAR(merging.seconds, best, 1e-9 * best) << "instance " << i;
    EXPECT_DOUBLE_EQ(merging.seconds, prioritySeconds(layers, wire, merging.groups))
        << "instance " << i;
    // Priority reaches into the next forward, which MG-WFBP does not.
    EXPECT_LE(merging.seconds, mergeExactly(layers, wire).seconds + 1e-9) << "instance " << i;
  }
}

// A group is to the link what one layer with the sums of its times and bytes would be.
TEST(Merging, PrioritySecondsIsWhatAPreemptiveLinkReaches) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 1'000; ++i) {
    const auto [layers, wire] = testing::anyInstance(random, 6);
    forEveryPartition(layers.size(), [&](const std::vector<Group>& groups) {
      std::vector<Layer> merged;
      for (const auto& [first, last] : groups) {
        Layer sum;
        for (size_t l = first; l <= last; ++l) {
          sum.forward += layers[l].forward;
          sum.backward += layers[l].backward;
          sum.bytes += layers[l].bytes;
        }
        merged.push_back(sum);
      }
      EXPECT_NEAR(prioritySeconds(layers, wire, groups), simulatePreemptive(merged, wire), 1e-9);
    });
  }
}

TEST(Merging, SinglesAreWfbpAndWithoutStartUpCostNothingIsGainedByMerging) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 500; ++i) {
    auto [layers, wire] = testing::anyInstance(random, 12);
    std::vector<Group> singles;
    for (size_t l = 0; l < layers.size(); ++l) singles.push_back({l, l});
    EXPECT_NEAR(iterationSeconds(layers, wire, singles), wfbpBound(layers, wire), 1e-9);
    wire.start = 0;
    EXPECT_NEAR(mergeExactly(layers, wire).seconds, wfbpBound(layers, wire), 1e-9);
    EXPECT_NEAR(mergeWithPriority(layers, wire).seconds, p3Bound(layers, wire), 1e-9);
  }
}

// Theorem 1 of the MG-WFBP paper does not hold. The values come from an enumeration written apart
// from this code.
TEST(Merging, CounterExamplesToTheorem1) {
  const struct {
    std::vector<double> backward;
    std::vector<double> parameters;
    double start;
    double published;
    double exact;
  } cases[] = {
      {{4, 2, 1}, {1, 1, 4}, 3, 15, 13},
      {{9, 5, 7}, {1, 1, 8}, 6, 34, 29},
      {{7, 5, 4, 4}, {3, 2, 2, 9}, 6, 41, 33},
      {{6, 5, 5, 3, 7}, {7, 3, 4, 5, 6}, 6, 57, 47},
  };
  for (const auto& c : cases) {
    std::vector<Layer> layers;
    for (size_t l = 0; l < c.backward.size(); ++l)
      layers.push_back({0, c.backward[l], c.parameters[l]});
    const WireCost wire{.start = c.start, .perByte = 1};
    EXPECT_DOUBLE_EQ(mergeByAlgorithm1(layers, wire).seconds, c.published);
    EXPECT_DOUBLE_EQ(mergeExactly(layers, wire).seconds, c.exact);
  }
  const std::vector<Layer> first{{0, 4, 1}, {0, 2, 1}, {0, 1, 4}};
  const WireCost wire{.start = 3, .perByte = 1};
  EXPECT_EQ(mergeByAlgorithm1(first, wire).groups, (std::vector<Group>{{0, 0}, {1, 2}}));
  EXPECT_EQ(mergeExactly(first, wire).groups, (std::vector<Group>{{0, 1}, {2, 2}}));
}

TEST(Merging, OfTheProfilesGainsOverOneMessagePerLayer) {
  for (const auto name : builtInProfiles()) {
    const auto layers = layersOf(*findProfile(std::string(name)), 0.1);
    const auto wire = ring(64, {.alpha = 45e-6, .beta = 8e-10, .gamma = 1e-10});
    const double wfbp = wfbpBound(layers, wire);
    const double exact = mergeExactly(layers, wire).seconds;
    EXPECT_LT(exact, wfbp) << name;
    EXPECT_LE(exact, mergeByAlgorithm1(layers, wire).seconds + 1e-12) << name;
    EXPECT_LE(mergeWithPriority(layers, wire).seconds, exact + 1e-12) << name;
  }
}

}  // namespace
}  // namespace sluice::timing
