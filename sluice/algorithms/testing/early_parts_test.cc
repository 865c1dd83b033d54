// asp and ssp with --overlap: parts leave before the training thread's word and wait at their
// servers. A dropped step leaves no trace, and a used one has the same result as without --overlap.
#include <map>
#include <random>

#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/stale_training.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/algorithms/words.h>
#include <sluice/data/kernel/element.h>

namespace sluice::algorithms {
namespace {

base::Config withOverlap(std::string_view onOrOff) {
  base::Config config;
  EXPECT_TRUE(config.set(option::kOverlap, onOrOff).isOk());
  return config;
}

// Three workers, each with a server, of three tensors. All elements of a worker's gradient are
// alike, and whole numbers keep every sum exact.
class EarlyJob final {
 public:
  explicit EarlyJob(std::string_view algorithm, std::string_view overlap = "on",
                    std::string_view servers = "all")
      : world_(algorithm, servers, 3,
               {{"a", 20, DType::kF64}, {"b", 1, DType::kF64}, {"c", 4, DType::kF64}}, "sgd:lr=1",
               /*updatesWaitForWord=*/true, withOverlap(overlap)) {}

  SteppedRank& rank(size_t number) { return *world_.ranks()[number]; }

  void backward(size_t worker, double gradient) {
    for (uint32_t t = 3; t-- > 0;) {
      const std::vector<double> all(world_.plan().model().tensors[t].elements, gradient);
      rank(worker).gradientReady(TensorId{t}, std::as_bytes(std::span(all)));
    }
  }
  void decide(size_t worker, Decision decision) {
    SteppedRank& here = rank(worker);
    here.loop().post([&here, decision] { EXPECT_TRUE(here.strategy().decide(decision).isOk()); });
  }
  void run() { runShuffled(world_.ranks(), random_); }

  bool isThrough(size_t worker) {
    for (uint32_t t = 0; t < 3; ++t) {
      if (!rank(worker).gates().isOpen(TensorId{t})) return false;
    }
    return true;
  }
  // Returns the worker's parameter, which all elements of its copy have.
  double parameter(size_t worker) {
    const double first = kernel::loadAt<double>(rank(worker).result(TensorId{0}).data(), 0);
    for (uint32_t t = 0; t < 3; ++t) {
      for (size_t i = 0; i < world_.plan().model().tensors[t].elements; ++i)
        EXPECT_EQ(kernel::loadAt<double>(rank(worker).result(TensorId{t}).data(), i), first);
    }
    return first;
  }
  void seed(uint32_t number) { random_.seed(number); }

 private:
  SteppedWorld world_;
  std::mt19937 random_{1};
};

class EarlyParts : public testing::TestWithParam<std::string> {};

TEST_P(EarlyParts, LeaveBeforeTheWordAndChangeNothingBeforeIt) {
  EarlyJob job(GetParam());
  size_t pushes = 0;
  job.rank(0).listen([&](const wire::Header& header) { pushes += header.stage == Stage::kPush; });
  job.backward(1, 2);
  job.run();
  EXPECT_GT(pushes, 0U);
  EXPECT_FALSE(job.isThrough(1));
  EXPECT_EQ(job.parameter(1), 0);
  job.decide(1, Decision::kUpdate);
  job.run();
  EXPECT_TRUE(job.isThrough(1));
  EXPECT_EQ(job.parameter(1), -2);
}

TEST_P(EarlyParts, StayWithTheWorkerWithoutTheOption) {
  EarlyJob job(GetParam(), "off");
  size_t messages = 0;
  job.rank(0).listen([&](const wire::Header&) { ++messages; });
  job.backward(1, 2);
  job.run();
  EXPECT_EQ(messages, 0U);
}

TEST_P(EarlyParts, OfADroppedStepLeaveNoTrace) {
  EarlyJob job(GetParam());
  job.backward(1, 2);
  job.run();
  job.decide(1, Decision::kDrop);
  job.run();
  for (uint32_t t = 0; t < 3; ++t) {
    EXPECT_TRUE(job.rank(1).gates().isOpen(TensorId{t}));
    EXPECT_TRUE(job.rank(1).gates().isEmpty(TensorId{t}));
  }
  EXPECT_EQ(job.parameter(1), 0);
  job.backward(1, 5);  // the same step again
  job.decide(1, Decision::kUpdate);
  job.run();
  EXPECT_EQ(job.parameter(1), -5);
}

class EarlyPartsInAnyOrder : public EarlyParts {};

// The word is given while parts still wait for credit or are on their way.
TEST_P(EarlyPartsInAnyOrder, GiveTheSumOfWhatWasUsed) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    EarlyJob job(GetParam());
    job.seed(seed);
    std::mt19937 chance(seed);
    double sum = 0;
    std::map<size_t, double> undecided;  // gradients, by worker
    for (int turn = 0; turn < 40; ++turn) {
      const size_t worker = chance() % 3;
      if (undecided.contains(worker)) {
        const bool isUsed = chance() % 3 != 0;
        job.decide(worker, isUsed ? Decision::kUpdate : Decision::kDrop);
        if (isUsed) sum += undecided[worker];
        undecided.erase(worker);
      } else if (job.isThrough(worker)) {
        undecided[worker] = 1 + static_cast<double>(chance() % 5);
        job.backward(worker, undecided[worker]);
      }
      const size_t few = chance() % 8;
      for (size_t i = 0; i < few; ++i) job.rank(chance() % 3).loop().runOne();
      if (chance() % 4 == 0) job.run();
    }
    for (const auto& [worker, gradient] : undecided) {
      job.decide(worker, Decision::kUpdate);
      sum += gradient;
    }
    job.run();
    // With ssp the slowest worker may go on in any case; it brings the others on, and reads all.
    for (int more = 0; more < 60; ++more) {
      for (size_t worker = 0; worker < 3; ++worker) {
        if (!job.isThrough(worker)) continue;
        job.backward(worker, 0);
        job.decide(worker, Decision::kUpdate);
        job.run();
      }
    }
    double least = 0;
    for (size_t worker = 0; worker < 3; ++worker) least = std::min(least, job.parameter(worker));
    EXPECT_EQ(least, -sum) << "seed " << seed;
  }
}

// With s = 0 a worker alone does not get through its first step.
INSTANTIATE_TEST_SUITE_P(All, EarlyParts, testing::Values("asp", "ssp:1", "ssp:2"));
INSTANTIATE_TEST_SUITE_P(All, EarlyPartsInAnyOrder, testing::Values("asp", "ssp:0", "ssp:2"));

TEST(EarlyPartsRefused, WhatCannotBeDroppedIsRefusedInOneLine) {
  plan::PlanSpec spec;
  spec.model.tensors = {{"a", 4, DType::kF32}};
  spec.roles = plan::parseRoles("all", 1).value();
  base::Config config = withOverlap("on");
  ASSERT_TRUE(config.set(option::kMomentumAt, "workers").isOk());
  const std::string stateful =
      "--overlap sends parts that can be dropped, which momentum or compression at the workers "
      "cannot take back; leave out --overlap, or --dgc and --momentum-at workers";
  EXPECT_EQ(algorithmNamed("asp").choose(config, spec).message(), stateful);
  config = withOverlap("on");
  ASSERT_TRUE(config.set(option::kDgc, "on").isOk());
  EXPECT_EQ(algorithmNamed("ssp").choose(config, spec).message(), stateful);
  config = withOverlap("on");
  ASSERT_TRUE(config.set(option::kNoOverlap, "on").isOk());
  EXPECT_EQ(algorithmNamed("asp").choose(config, spec).message(),
            "--overlap and --no-overlap contradict each other; leave out one");
}

// A rank that sends words or parts of another job's settings is refused, and nothing changes.
TEST(EarlyPartsRefused, AWordThatNoPartWaitsForIsRefused) {
  EarlyJob job("asp", "off");
  Status answer = base::ok();
  wire::Header word{.source = Rank{1}, .destination = Rank{0}, .stage = Stage::kUpdate};
  word.flags = answering::kUse;
  job.rank(0).loop().post(
      [&] { answer = job.rank(0).onMessage(Rank{1}, fabric::Lane::kBulk, word).status(); });
  job.run();
  EXPECT_EQ(answer.code(), Code::kRefused) << answer.toString();
}

}  // namespace
}  // namespace sluice::algorithms
