// The promises of gosgd and adpsgd in a job: nobody ever waits, whatever the order; models draw
// together; with adpsgd the sum over all changes by gradients only.
#include <sluice/algorithms/gossip/gossip_engine.h>

#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/data/kernel/element.h>

namespace sluice::algorithms {
namespace {

class GossipJob final {
 public:
  GossipJob(std::string_view algorithm, uint32_t world, uint32_t seed,
            const base::Config& config = {})
      : world_(algorithm, "all", world, {{"a", 7, DType::kF64}, {"b", 2, DType::kF64}}, "sgd:lr=1",
               /*updatesWaitForWord=*/false, config),
        random_(seed) {}

  void step(uint32_t worker, double gradient) {
    for (const uint32_t t : {1U, 0U}) {
      const std::vector<double> gradients(world_.plan().model().tensors[t].elements, gradient);
      rank(worker).gradientReady(TensorId{t}, std::as_bytes(std::span(gradients)));
    }
    expectedSum_ -= gradient;
  }
  bool isReady(uint32_t worker) {
    return rank(worker).gates().isOpen(TensorId{0}) && rank(worker).gates().isOpen(TensorId{1});
  }
  // A worker goes on without anybody else's doing.
  void finishAlone(uint32_t worker) {
    rank(worker).loop().runReady();
    ASSERT_TRUE(isReady(worker));
  }
  void turn() { rank(static_cast<uint32_t>(random_() % world_.ranks().size())).loop().runOne(); }
  void drain() { runShuffled(world_.ranks(), random_); }

  double value(uint32_t worker, uint32_t tensor, size_t element) {
    return kernel::loadAt<double>(rank(worker).result(TensorId{tensor}).data(), element);
  }
  double sum(uint32_t tensor, size_t element) {
    double sum = 0;
    for (uint32_t worker = 0; worker < world_.ranks().size(); ++worker)
      sum += value(worker, tensor, element);
    return sum;
  }
  double expectedSum() const { return expectedSum_; }
  std::mt19937& random() { return random_; }
  SteppedRank& rank(uint32_t r) { return *world_.ranks()[r]; }

 private:
  SteppedWorld world_;
  std::mt19937 random_;
  double expectedSum_ = 0;
};

const std::vector<std::string>& gossips() {
  static const std::vector<std::string> kGossips{
      "gosgd:1",        "gosgd:0.5",          "adpsgd:ring",
      "adpsgd:torus",   "adpsgd:exponential", "adpsgd:random-regular",
      "adpsgd:complete"};
  return kGossips;
}

TEST(GossipTraining, NobodyWaitsAndModelsDrawTogether) {
  for (const auto& algorithm : gossips()) {
    for (const uint32_t world : {2U, 3U, 6U, 9U}) {
      if (world != 3 && base::testsAreShort()) continue;
      SCOPED_TRACE(fmt::format("{} with {} workers", algorithm, world));
      GossipJob job(algorithm, world, world);
      // Far apart at first.
      for (uint32_t worker = 0; worker < world; ++worker) job.step(worker, -1.0 * worker);
      job.drain();
      for (int round = 0; round < 2000; ++round) {
        const auto worker = static_cast<uint32_t>(job.random()() % world);
        if (job.isReady(worker)) job.step(worker, 0);
        if (round % 5 == 0) job.finishAlone(worker);
        for (int turn = 0; turn < 12; ++turn) job.turn();
      }
      job.drain();
      for (uint32_t worker = 0; worker < world; ++worker) job.step(worker, 0);
      job.drain();
      for (uint32_t worker = 0; worker < world; ++worker) {
        for (size_t i = 0; i < 7; ++i) {
          EXPECT_GT(job.value(worker, 0, i), -1e-9);
          EXPECT_LT(job.value(worker, 0, i), world - 1 + 1e-9);
          EXPECT_NEAR(job.value(worker, 0, i), job.value(0, 0, i), 0.1 * world)
              << "worker " << worker;
        }
      }
    }
  }
}

TEST(GossipTraining, AdPsgdKeepsTheSum) {
  const uint32_t seeds = base::testsAreShort() ? 40 : 200;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    const std::string algorithm = gossips()[2 + seed % 5];
    const uint32_t world = 2 + seed / 4 % 8;
    SCOPED_TRACE(fmt::format("{} with {} workers, seed {}", algorithm, world, seed));
    GossipJob job(algorithm, world, seed);
    for (int round = 0; round < 60; ++round) {
      const auto worker = static_cast<uint32_t>(job.random()() % world);
      if (job.isReady(worker)) job.step(worker, static_cast<double>(job.random()() % 100) - 30);
      for (int turn = 0; turn < 10; ++turn) job.turn();
    }
    job.drain();
    // A worker reads its own parameters at the end of its step; with all at rest, each ends one
    // alone. The passive ones first, before the active ones have said anything new.
    for (const uint32_t first : {1U, 0U}) {
      for (uint32_t worker = first; worker < world; worker += 2) {
        job.step(worker, 0);
        job.finishAlone(worker);
      }
    }
    const double expected = job.expectedSum();
    for (size_t i = 0; i < 7; ++i)
      ASSERT_NEAR(job.sum(0, i), expected, 1e-6 * std::abs(expected) + 1e-9) << i;
    ASSERT_NEAR(job.sum(1, 1), expected, 1e-6 * std::abs(expected) + 1e-9);
  }
}

// Counts the exchanges that each worker begins with each other one, by the pushes of one slice, in
// so many steps of all workers, with everything taken in between.
std::map<std::pair<uint32_t, uint32_t>, double> exchangesOf(const std::string& algorithm,
                                                            uint32_t world, uint32_t steps,
                                                            const char* gossipSeed) {
  base::Config config;
  EXPECT_TRUE(config.set(option::kGossipSeed, gossipSeed).isOk());
  std::map<std::pair<uint32_t, uint32_t>, double> count;
  std::set<std::pair<Rank, Step>> seen;  // a message that was put off is heard again
  GossipJob job(algorithm, world, 1, config);
  for (uint32_t r = 0; r < world; ++r) {
    job.rank(r).listen([&](const wire::Header& header) {
      if (header.stage != Stage::kPush || header.slice != SliceId{0}) return;
      if (!seen.emplace(header.source, header.step).second) return;
      ++count[{index(header.source), index(header.destination)}];
    });
  }
  for (uint32_t step = 0; step < steps; ++step) {
    for (uint32_t worker = 0; worker < world; ++worker) job.step(worker, 0);
    job.drain();
  }
  return count;
}

TEST(GossipTraining, GoSgdSendsWithItsProbabilityToAllAlike) {
  constexpr uint32_t kWorld = 4;
  constexpr double kSteps = 2000;
  for (const auto& [algorithm, p] : {std::pair("gosgd:0.1", 0.1), std::pair("gosgd:1", 1.0)}) {
    const auto count = exchangesOf(algorithm, kWorld, kSteps, "5");
    EXPECT_EQ(count.size(), kWorld * (kWorld - 1));
    const double share = p / (kWorld - 1);
    for (const auto& [pair, exchanges] : count) {
      EXPECT_NEAR(exchanges / kSteps, share, 4.5 * std::sqrt(share * (1 - share) / kSteps))
          << algorithm << ": " << pair.first << " to " << pair.second;
    }
  }
}

TEST(GossipTraining, AdPsgdMeetsAllNeighboursAlike) {
  constexpr double kSteps = 1000;
  const auto count = exchangesOf("adpsgd:complete", 6, kSteps, "5");
  EXPECT_EQ(count.size(), 3U * 3U);  // active with passive workers
  for (const auto& [pair, exchanges] : count) {
    EXPECT_EQ(pair.first % 2, 0U);
    EXPECT_EQ(pair.second % 2, 1U);
    EXPECT_NEAR(exchanges / kSteps, 1.0 / 3, 4.5 * std::sqrt(2.0 / 9 / kSteps));
  }
}

TEST(GossipTraining, DrawsDependOnTheSeed) {
  for (const char* algorithm : {"gosgd:0.3", "adpsgd:complete", "adpsgd:random-regular"}) {
    const auto first = exchangesOf(algorithm, 6, 30, "1");
    EXPECT_EQ(first, exchangesOf(algorithm, 6, 30, "1")) << algorithm;
    EXPECT_NE(first, exchangesOf(algorithm, 6, 30, "2")) << algorithm;
  }
}

TEST(GossipTraining, OneWorkerTrainsAsAlone) {
  for (const auto& algorithm : gossips()) {
    GossipJob job(algorithm, 1, 1);
    for (int step = 0; step < 10; ++step) {
      job.step(0, 2);
      job.finishAlone(0);
    }
    EXPECT_EQ(job.value(0, 0, 3), -20) << algorithm;
  }
}

TEST(GossipTraining, HasNoServers) {
  base::Config config;
  for (const Algorithm* algorithm : {&algorithmNamed("gosgd"), &algorithmNamed("adpsgd")}) {
    plan::PlanSpec spec;
    spec.model.tensors = {{"w", 4, DType::kF32}};
    spec.roles = plan::parseRoles("dedicated:1", 3).value();
    spec.strategy = algorithm->name;
    EXPECT_EQ(algorithm->choose(config, spec).message(),
              fmt::format("{} has no servers: leave out --servers dedicated", algorithm->name));
  }
}

}  // namespace
}  // namespace sluice::algorithms
