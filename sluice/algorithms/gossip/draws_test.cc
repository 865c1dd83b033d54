#include <sluice/algorithms/gossip/draws.h>

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::gossip {
namespace {

constexpr uint64_t kSteps = 40'000;

TEST(GossipDraws, AWorkerSendsWithTheProbability) {
  for (const double p : {0.01, 0.1, 0.5, 1.0}) {
    for (const uint64_t seed : {0U, 1U, 12345U}) {
      for (const uint64_t worker : {0U, 1U, 7U}) {
        const Draws draws(seed, worker);
        uint64_t hits = 0;
        for (uint64_t step = 0; step < kSteps; ++step) hits += draws.isHit(step, p) ? 1 : 0;
        const double deviation = std::sqrt(static_cast<double>(kSteps) * p * (1 - p));
        EXPECT_NEAR(static_cast<double>(hits), static_cast<double>(kSteps) * p, 4 * deviation)
            << "p " << p << ", seed " << seed << ", worker " << worker;
      }
    }
  }
}

TEST(GossipDraws, EveryPartnerIsEquallyLikely) {
  for (const size_t partners : {2U, 3U, 7U, 15U}) {
    for (const uint64_t seed : {0U, 1U, 12345U}) {
      const Draws draws(seed, 3);
      std::vector<double> count(partners);
      // Only the steps in which a worker sends count: the two draws must not depend on each other.
      double all = 0;
      for (uint64_t step = 0; step < kSteps; ++step) {
        if (!draws.isHit(step, 0.5)) continue;
        ++count[draws.oneOf(partners, step)];
        ++all;
      }
      const double expected = all / static_cast<double>(partners);
      double chiSquare = 0;
      for (const double each : count) chiSquare += (each - expected) * (each - expected) / expected;
      // Chi-square has the mean n - 1 and the variance 2 (n - 1).
      const double freedom = static_cast<double>(partners) - 1;
      EXPECT_LT(chiSquare, freedom + 5 * std::sqrt(2 * freedom)) << partners << ", seed " << seed;
    }
  }
}

TEST(GossipDraws, SeedsAndWorkersDiffer) {
  const auto agreements = [](const Draws& one, const Draws& other) {
    uint64_t same = 0;
    for (uint64_t step = 0; step < kSteps; ++step)
      same += one.isHit(step, 0.5) == other.isHit(step, 0.5) ? 1 : 0;
    return static_cast<double>(same);
  };
  const Draws draws(1, 0);
  EXPECT_EQ(agreements(draws, Draws(1, 0)), kSteps);
  for (const Draws& other : {Draws(2, 0), Draws(1, 1), Draws(0, 1)})
    EXPECT_NEAR(agreements(draws, other), kSteps / 2.0, 4 * std::sqrt(kSteps) / 2);
  EXPECT_NE(graphSeed(1), graphSeed(2));
}

}  // namespace
}  // namespace sluice::gossip
