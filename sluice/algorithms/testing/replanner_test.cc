// Groups that change with the times: on all ranks after the same step, and with the same bits.
// Every rank has a clock of its own, which the test moves.
#include <sluice/algorithms/reduction/replanner.h>

#include <algorithm>
#include <optional>
#include <random>
#include <ranges>
#include <set>

#include <gtest/gtest.h>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/options.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::algorithms {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

constexpr uint32_t kRanks = 3;
constexpr uint32_t kTensors = 4;
constexpr uint64_t kElements = 300;

// The costs that a job is planned with.
struct Planned {
  const char* start = "1ms";      // of a reduction
  const char* rate = "100gbit";   // of a link
  const char* compute = "100ms";  // of an iteration
  const char* codec = "none";
  const char* replanSteps = "5";
  const char* reductions = "1";
};

base::Config configOf(const Planned& planned) {
  base::Config config;
  const std::pair<const base::Option*, const char*> options[] = {
      {&option::kReductionStart, planned.start},    {&option::kReductionRate, planned.rate},
      {&option::kComputeTime, planned.compute},     {&option::kCodec, planned.codec},
      {&option::kReplanSteps, planned.replanSteps}, {&option::kReductions, planned.reductions}};
  for (const auto& [option, value] : options) EXPECT_TRUE(config.set(*option, value).isOk());
  return config;
}

plan::PlanSpec specOf() {
  plan::PlanSpec spec;
  for (const char* name : {"a", "b", "c", "d"})
    spec.model.tensors.push_back({name, kElements, DType::kF32});
  spec.roles = plan::parseRoles("all", kRanks).value();
  spec.strategy = algorithmNamed("mgwfbp").name;
  return spec;
}

class DriftingJob final {
 public:
  // `last`: what the last rank believes to have been planned with, if it is something else.
  explicit DriftingJob(const Planned& planned, const std::optional<Planned>& last = {})
      : config_(configOf(planned)),
        configOfLast_(configOf(last.value_or(planned))),
        hub_(kRanks),
        heard_(kRanks) {
    plan::PlanSpec spec = specOf();
    EXPECT_TRUE(algorithmNamed("mgwfbp").choose(config_, spec).isOk());
    plan_.emplace(plan::Plan::make(std::move(spec)).value());
    const std::vector<Bytes> parameters(kTensors, Bytes(kElements * sizeof(float)));
    for (uint32_t r = 0; r < kRanks; ++r) {
      const base::Config& config = r + 1 < kRanks ? config_ : configOfLast_;
      SteppedRank& one = *ranks_.emplace_back(std::make_unique<SteppedRank>(
          *plan_, Rank{r}, update_, parameters, config, hub_, algorithmNamed("mgwfbp")));
      one.listen([this, r, &one](const wire::Header& header) {
        heard_[r].insert(header.tensor);
        one.loop().stall(messageTakes_);
        if (index(header.tensor) < kTensors) return;
        // Whoever shares the collective with this may use it once a gate is open.
        for (uint32_t t = 0; t < kTensors; ++t) EXPECT_FALSE(one.gates().isOpen(TensorId{t}));
      });
    }
  }

  // A step in which each tensor's backward takes so long on each rank. Reductions take no time.
  void step(const std::vector<Duration>& backward) {
    messageTakes_ = {};
    for (uint32_t t = kTensors; t-- > 0;) {
      for (uint32_t r = 0; r < kRanks; ++r) {
        rank(r).loop().stall(backward[r]);
        handOver(r, t);
      }
      runShuffled(ranks_, random_);
    }
    expectOver();
  }
  void steps(int count, const std::vector<Duration>& backward) {
    for (int n = 0; n < count; ++n) step(backward);
  }
  // A step in which every message takes so long to come. The time of backward is not seen.
  void stepWithMessagesOf(Duration each) {
    messageTakes_ = each;
    for (uint32_t r = 0; r < kRanks; ++r) handOverAll(r);
    runShuffled(ranks_, random_);
    expectOver();
  }
  void handOver(uint32_t r, uint32_t tensor) {
    rank(r).gradientReady(TensorId{tensor},
                          numbers_.elements(DType::kF32, kElements, /*ordinary=*/true));
  }
  void handOverAll(uint32_t r) {
    for (uint32_t t = kTensors; t-- > 0;) handOver(r, t);
  }
  void beginNumbersAt(uint64_t seed) { numbers_ = kernel::TestNumbers(seed); }

  // In how many groups tensors have travelled since the last call, on every rank, and whether the
  // ranks have compared their times.
  struct Seen {
    size_t groups = 0;
    bool compared = false;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  Seen seen() {
    const std::set<TensorId> all = heard_[0];
    for (auto& heard : heard_) EXPECT_EQ(std::exchange(heard, {}), all);
    const auto groups = static_cast<size_t>(
        std::ranges::count_if(all, [](TensorId ticket) { return index(ticket) < kTensors; }));
    return {groups, all.size() > groups};
  }
  std::vector<Bytes> parameters(uint32_t r) {
    std::vector<Bytes> all;
    for (uint32_t t = 0; t < kTensors; ++t) {
      const auto result = rank(r).result(TensorId{t});
      all.emplace_back(result.begin(), result.end());
    }
    return all;
  }
  bool isOpen(uint32_t r) {
    return std::ranges::all_of(std::views::iota(0U, kTensors),
                               [&](uint32_t t) { return rank(r).gates().isOpen(TensorId{t}); });
  }
  void expectOver() {
    for (uint32_t r = 0; r < kRanks; ++r) {
      ASSERT_TRUE(isOpen(r)) << rank(r).strategy().describeWait(TensorId{0});
      EXPECT_EQ(parameters(r), parameters(0));
    }
  }
  // On the rank's loop, after all that waits there.
  template <typename Task>
  void onLoop(uint32_t r, Task task) {
    rank(r).loop().post([&] { task(rank(r).strategy()); });
    rank(r).loop().runReady();
  }
  Bytes state(uint32_t r) {
    Bytes bytes;
    onLoop(r, [&](Strategy& strategy) { bytes = strategy.checkpoint().take().value(); });
    return bytes;
  }
  SteppedRank& rank(uint32_t r) { return *ranks_[r]; }
  std::vector<std::unique_ptr<SteppedRank>>& ranks() { return ranks_; }

 private:
  const base::Config config_;
  const base::Config configOfLast_;
  const optimizer::OptimizerSpec update_ =
      optimizer::parseOptimizerSpec("sgd:lr=0.1,momentum=0.9").value();
  std::optional<plan::Plan> plan_;
  fabric::LoopbackHub hub_;
  Duration messageTakes_{};
  std::vector<std::set<TensorId>> heard_;  // by rank: tickets whose message has come
  std::vector<std::unique_ptr<SteppedRank>> ranks_;
  kernel::TestNumbers numbers_{7};
  std::mt19937 random_{3};
};

using Seen = DriftingJob::Seen;
const std::vector<Duration> kAsPlanned(kRanks, 16'667us);
const std::vector<Duration> kFast(kRanks, 1us);

TEST(Replanner, LayersThatBecomeFastAreMergedOnAllRanksAfterTheSameStep) {
  DriftingJob job(Planned{});
  for (int step = 0; step < 15; ++step) {
    job.step({100us, 50us, 100us});
    // The first boundary changes the groups, the later ones nothing.
    EXPECT_EQ(job.seen(), (Seen{step < 5 ? 4U : 1U, step % 5 == 4})) << step;
  }
}

TEST(Replanner, LayersThatBecomeSlowAreSplit) {
  DriftingJob job({.rate = "1mbit", .compute = "1ms"});
  for (int step = 0; step < 15; ++step) {
    job.step(kAsPlanned);
    EXPECT_EQ(job.seen(), (Seen{step < 5 ? 1U : 4U, step % 5 == 4})) << step;
  }
}

TEST(Replanner, TheSlowestRankDecides) {
  DriftingJob job(Planned{});
  job.steps(10, {1us, 17ms, 1us});
  EXPECT_EQ(job.seen(), (Seen{4, true}));
  job.step({1us, 17ms, 1us});
  EXPECT_EQ(job.seen(), (Seen{4, false}));
  // It becomes as fast as the others: by the median, in most of the steps up to the next boundary.
  job.steps(4, kFast);
  EXPECT_EQ(job.seen(), (Seen{4, true}));
  job.step(kFast);
  EXPECT_EQ(job.seen(), (Seen{1, false}));
}

// Whatever is learned with few groups must not undo what was learned with many.
TEST(Replanner, MessagesThatBecomeSlowAreMergedAndStaySo) {
  DriftingJob job({.start = "1us", .compute = "6ms"});
  size_t groups = 4;
  for (int step = 0; step < 40; ++step) {
    job.stepWithMessagesOf(1ms);
    const Seen seen = job.seen();
    EXPECT_EQ(seen.compared, step % 5 == 4);
    EXPECT_LE(seen.groups, step == 5 ? 3U : groups) << step;
    groups = seen.groups;
  }
  EXPECT_EQ(groups, 1U);
}

TEST(Replanner, NoiseChangesNothing) {
  DriftingJob job(Planned{});
  std::mt19937 random(5);
  std::uniform_int_distribution<int> microseconds(16'000, 17'300);
  for (int step = 0; step < 50; ++step) {
    job.step({microseconds(random) * 1us, microseconds(random) * 1us, microseconds(random) * 1us});
    EXPECT_EQ(job.seen(), (Seen{4, step % 5 == 4})) << step;
  }
}

TEST(Replanner, IsSilentIfItIsNotWantedOrCannotTell) {
  for (const Planned& planned : {Planned{.replanSteps = "0"}, Planned{.reductions = "2"}}) {
    DriftingJob job(planned);
    for (int step = 0; step < 20; ++step) {
      job.step(kFast);
      EXPECT_EQ(job.seen(), (Seen{4, false}));
    }
  }
}

// The last rank was told that starts cost next to nothing: it sees no reason to merge, so nobody
// does.
TEST(Replanner, RanksThatMakeDifferentPlansKeepTheOneTheyHave) {
  DriftingJob job(Planned{}, Planned{.start = "1us"});
  for (int step = 0; step < 20; ++step) {
    job.step({100us, 100us, 100us});
    EXPECT_EQ(job.seen(), (Seen{4, step % 5 == 4})) << step;
  }
}

TEST(Replanner, ResultsHaveTheBitsOfAJobThatKeepsItsGroups) {
  DriftingJob changes(Planned{});
  DriftingJob keeps({.replanSteps = "0"});
  for (int step = 0; step < 12; ++step) {
    for (DriftingJob* job : {&changes, &keeps}) job->step(kFast);
    ASSERT_EQ(changes.parameters(0), keeps.parameters(0)) << "step " << step;
    EXPECT_EQ(changes.seen().groups, step < 5 ? 4U : 1U);
  }
}

TEST(Replanner, WhatACodecOwesGoesWithItsTensors) {
  DriftingJob changes({.codec = "int8"});
  DriftingJob keeps({.codec = "int8", .replanSteps = "0"});
  for (DriftingJob* job : {&changes, &keeps}) job->steps(5, kFast);
  for (uint32_t r = 0; r < kRanks; ++r) EXPECT_EQ(changes.state(r), keeps.state(r));
  (void)changes.seen();
  changes.step(kFast);
  EXPECT_EQ(changes.seen().groups, 1U);
}

// A checkpoint of a job that has changed its groups, in one that begins with the plan's.
TEST(Replanner, ACheckpointFitsWhateverTheGroupsAre) {
  DriftingJob before(Planned{});
  before.steps(6, kFast);
  DriftingJob after(Planned{});
  for (uint32_t r = 0; r < kRanks; ++r) {
    const Bytes state = before.state(r);
    after.onLoop(
        r, [&](Strategy& strategy) { EXPECT_TRUE(strategy.checkpoint().restore(state).isOk()); });
    for (uint32_t t = 0; t < kTensors; ++t)
      std::ranges::copy(before.rank(r).result(TensorId{t}),
                        after.rank(r).place(TensorId{t}).begin());
  }
  for (DriftingJob* job : {&before, &after}) {
    (void)job->seen();
    job->beginNumbersAt(11);
    job->steps(3, kFast);
  }
  EXPECT_EQ(before.seen().groups, 1U);
  EXPECT_EQ(after.seen().groups, 4U);
  EXPECT_EQ(before.parameters(0), after.parameters(0));
}

// Each rank goes on as soon as its own gates are open, whatever the others are at.
TEST(Replanner, RanksThatGoOnByThemselvesStayAlike) {
  for (const char* replanSteps : {"1", "2", "3"}) {
    for (const unsigned seed : {1U, 2U, 3U}) {
      DriftingJob job({.replanSteps = replanSteps});
      std::mt19937 random(seed);
      constexpr uint32_t kSteps = 10;
      std::vector<uint32_t> steps(kRanks);
      for (int turn = 0; turn < 100'000 && std::ranges::count(steps, kSteps) < kRanks; ++turn) {
        const uint32_t r = random() % kRanks;
        if (job.isOpen(r) && steps[r] < kSteps) {
          ++steps[r];
          job.handOverAll(r);
        }
        job.rank(r).loop().runOne();
      }
      EXPECT_EQ(steps, std::vector<uint32_t>(kRanks, kSteps));
      runShuffled(job.ranks(), random);
      job.expectOver();
    }
  }
}

TEST(Replanner, AWaitAtABoundarySaysSoAndEndsWithALostRank) {
  DriftingJob job({.replanSteps = "1"});
  for (uint32_t r = 0; r < kRanks; ++r) job.handOverAll(r);
  const auto isComparing = [&] {
    return job.rank(0)
        .strategy()
        .describeWait(TensorId{3})
        .starts_with("the ranks compare their times after step 0: ");
  };
  for (int turn = 0; turn < 10'000 && !isComparing(); ++turn) {
    for (uint32_t r = 0; r < kRanks; ++r) job.rank(r).loop().runOne();
  }
  EXPECT_TRUE(isComparing());
  for (uint32_t t = 0; t < kTensors; ++t) EXPECT_FALSE(job.rank(0).gates().isOpen(TensorId{t}));
  Status idle;
  job.onLoop(0, [&](Strategy& strategy) {
    strategy.whenIdle([&](const Status& status) { idle = status; });
    strategy.fail({Code::kPeerLost, "rank 1 is gone"});
  });
  EXPECT_EQ(idle.message(), "rank 1 is gone");
  EXPECT_EQ(job.rank(0).gates().wait(TensorId{0}).message(),
            "waiting for 'a' of step 0: rank 1 is gone");
}

TEST(Replanner, RefusesLessThanNoSteps) {
  plan::PlanSpec spec = specOf();
  EXPECT_EQ(algorithmNamed("mgwfbp").choose(configOf({.replanSteps = "-1"}), spec).message(),
            "--replan-steps must not be negative; 0 means never");
}

}  // namespace
}  // namespace sluice::algorithms
