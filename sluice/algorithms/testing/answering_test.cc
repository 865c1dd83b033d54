// The promises of asp, ssp and easgd: the numbers of a scripted reference, and the bound of
// staleness.
#include <sluice/algorithms/server/answering.h>

#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::algorithms {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<Tensor> threeTensors(DType dtype = DType::kF32) {
  return {{"a", 50, dtype}, {"b", 1, dtype}, {"c", 4, dtype}};
}

// A scripted order: one worker's gradient of one tensor, and all that comes of it, at a time.
class Script final {
 public:
  Script(std::string_view algorithm, std::string_view servers, uint32_t world,
         std::string_view update, DType dtype)
      : world_(algorithm, servers, world, threeTensors(dtype), update),
        random_(world),
        numbers_(world) {}

  struct Event {
    Rank worker;
    uint32_t tensor;
    Step step;
    Bytes gradient;
  };

  // Any worker, any tensor: nobody waits for anybody.
  Event next() {
    const auto& workers = world_.plan().roles().workers;
    const Rank worker = workers[random_() % workers.size()];
    const auto t = static_cast<uint32_t>(random_() % world_.plan().model().tensors.size());
    const auto& tensor = world_.plan().model().tensors[t];
    Event event{worker, t, Step{steps_[{worker, t}]++},
                numbers_.elements(tensor.dtype, tensor.elements, /*ordinary=*/true)};
    rank(worker).gradientReady(TensorId{t}, event.gradient);
    runShuffled(world_.ranks(), random_);
    EXPECT_TRUE(rank(worker).gates().isOpen(TensorId{t}))
        << rank(worker).strategy().describeWait(TensorId{t});
    return event;
  }

  const plan::Plan& plan() const { return world_.plan(); }
  const optimizer::OptimizerSpec& update() const { return world_.update(); }
  SteppedRank& rank(Rank rank) { return *world_.ranks()[index(rank)]; }
  Bytes result(Rank worker, uint32_t tensor) {
    const auto bytes = rank(worker).result(TensorId{tensor});
    return {bytes.begin(), bytes.end()};
  }

 private:
  SteppedWorld world_;
  std::mt19937 random_;
  kernel::TestNumbers numbers_;
  std::map<std::pair<Rank, uint32_t>, uint64_t> steps_;
};

// One model and its optimizer in one process.
class LocalModel final {
 public:
  LocalModel(const Model& model, const optimizer::OptimizerSpec& update) : update_(update) {
    for (const auto& tensor : model.tensors) {
      parameters.emplace_back(tensor.bytes());
      states_.emplace_back(update.optimizer->name(), tensor.dtype, tensor.elements);
    }
  }
  void step(uint32_t tensor, const Bytes& gradient) {
    const DType dtype = states_[tensor].dtype();
    Bytes wide(states_[tensor].elements() * sizeOf(kernel::accumulatorOf(dtype)));
    kernel::widen(dtype, wide, gradient);
    ASSERT_TRUE(
        applyStep(*update_.optimizer, states_[tensor], parameters[tensor], wide, update_.values)
            .isOk());
  }
  std::vector<Bytes> parameters;

 private:
  const optimizer::OptimizerSpec& update_;
  std::vector<optimizer::OptimizerState> states_;
};

struct Scene {
  std::string servers;
  uint32_t world;
  std::string update;
  DType dtype = DType::kF32;
};
std::vector<Scene> scenes() {
  return {{"all", 1, "sgd:lr=0.1"},
          {"all", 4, "sgd:lr=0.1,momentum=0.9,weight_decay=0.01"},
          {"1", 3, "adam:lr=0.01"},
          {"dedicated:1", 3, "adamw:lr=0.01"},
          {"dedicated:2", 5, "sgd:lr=0.1,momentum=0.9"},
          {"all", 3, "adam:lr=0.01", DType::kBF16},
          {"all", 2, "sgd:lr=0.1", DType::kF64}};
}

TEST(Asp, HasTheBitsOfAScriptedReference) {
  for (const Scene& c : scenes()) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", c.servers, c.world, c.update, name(c.dtype)));
    Script script("asp", c.servers, c.world, c.update, c.dtype);
    LocalModel server(script.plan().model(), script.update());
    std::map<std::pair<Rank, uint32_t>, Bytes> seen;  // the values that each worker has read last
    for (int event = 0; event < 100; ++event) {
      const auto [worker, tensor, step, gradient] = script.next();
      server.step(tensor, gradient);
      seen[{worker, tensor}] = server.parameters[tensor];
      for (const auto& [who, parameters] : seen)
        ASSERT_EQ(script.result(who.first, who.second), parameters) << "event " << event;
    }
  }
}

TEST(Easgd, HasTheBitsOfAScriptedReference) {
  constexpr uint64_t kTau = 3;
  for (const Scene& c : scenes()) {
    if (c.dtype != DType::kF32) continue;  // the reference calculates in plain floats
    SCOPED_TRACE(fmt::format("{} {} {}", c.servers, c.world, c.update));
    Script script("easgd:3", c.servers, c.world, c.update, c.dtype);
    const auto workers = script.plan().roles().workers;
    const auto alpha = static_cast<float>(0.9 / static_cast<double>(workers.size()));
    std::vector<Bytes> centre = LocalModel(script.plan().model(), script.update()).parameters;
    std::map<Rank, LocalModel> models;
    for (const Rank worker : workers)
      models.emplace(worker, LocalModel(script.plan().model(), script.update()));
    for (int event = 0; event < 150; ++event) {
      const auto [worker, tensor, step, gradient] = script.next();
      LocalModel& model = models.at(worker);
      if (index(step) % kTau == 0) {
        for (size_t i = 0; i < centre[tensor].size() / sizeof(float); ++i) {
          const auto x = kernel::loadAt<float>(model.parameters[tensor].data(), i);
          const auto other = kernel::loadAt<float>(centre[tensor].data(), i);
          const float difference = x - other;
          const float pull = difference * alpha;
          kernel::storeAt(model.parameters[tensor].data(), i, x - pull);
          kernel::storeAt(centre[tensor].data(), i, other + pull);
        }
      }
      model.step(tensor, gradient);
      for (const auto& [who, theirs] : models)
        ASSERT_EQ(script.result(who, tensor), theirs.parameters[tensor]) << "event " << event;
    }
  }
}

// Every worker adds one to its own element in each step: what a worker reads counts the steps of
// each worker that it knows of.
class Counting final {
 public:
  Counting(std::string_view algorithm, std::string_view servers, uint32_t world, uint32_t seed,
           base::Config config = {})
      : world_(algorithm, servers, world,
               {{"head", 2, DType::kF32}, {"counts", world, DType::kF32}}, "sgd:lr=1",
               /*updatesWaitForWord=*/false, std::move(config)),
        random_(seed),
        clocks_(world) {}

  bool isReady(uint32_t worker) {
    return rank(worker).gates().isOpen(TensorId{0}) && rank(worker).gates().isOpen(TensorId{1});
  }
  void step(uint32_t worker) {
    std::vector<float> minus(clocks_.size());
    minus[worker] = -1;
    rank(worker).gradientReady(TensorId{1}, std::as_bytes(std::span(minus)));
    const std::vector<float> head(2, -1);
    rank(worker).gradientReady(TensorId{0}, std::as_bytes(std::span(head)));
    ++clocks_[worker];
  }
  uint64_t reads(uint32_t worker, uint32_t of) {
    return static_cast<uint64_t>(
        kernel::loadAt<float>(rank(worker).result(TensorId{1}).data(), of));
  }
  uint64_t clock(uint32_t worker) const { return clocks_[worker]; }

  // One thing happens, somewhere.
  void turn(std::span<const uint32_t> workers) {
    if (random_() % 8 == 0) {
      const uint32_t worker = workers[random_() % workers.size()];
      if (isReady(worker)) step(worker);
    } else {
      world_.ranks()[random_() % world_.ranks().size()]->loop().runOne();
    }
  }
  void drain() { runShuffled(world_.ranks(), random_); }
  SteppedRank& rank(uint32_t r) { return *world_.ranks()[r]; }
  std::mt19937& random() { return random_; }
  uint64_t bytesSent() {
    uint64_t bytes = 0;
    for (const auto& rank : world_.ranks()) bytes += rank->fabric().counters().bytesSent;
    return bytes;
  }

 private:
  SteppedWorld world_;
  std::mt19937 random_;
  std::vector<uint64_t> clocks_;
};

std::vector<uint32_t> workersOf(std::string_view servers, uint32_t world) {
  const plan::Roles roles = plan::parseRoles(servers, world).value();
  std::vector<uint32_t> workers;
  for (const Rank worker : roles.workers) workers.push_back(index(worker));
  return workers;
}

void expectNobodyReadsMoreThanTheBoundBehind(uint32_t seeds, const base::Config& config) {
  uint64_t steps = 0;
  uint64_t behind = 0;
  for (uint32_t seed = 0; seed < seeds && !testing::Test::HasFatalFailure(); ++seed) {
    const uint64_t bound = seed % 4;
    const uint32_t world = 2 + seed % 4;
    const char* servers = seed % 3 == 0 ? "dedicated:1" : "all";
    const auto workers = workersOf(servers, world);
    SCOPED_TRACE(
        fmt::format("seed {}, {} ranks, bound {}, servers {}", seed, world, bound, servers));
    Counting job(fmt::format("ssp:{}", bound), servers, world, seed, config);
    for (int turn = 0; turn < 1500; ++turn) {
      for (const uint32_t worker : workers) {
        if (!job.isReady(worker)) continue;
        for (const uint32_t other : workers) {
          ASSERT_GE(job.reads(worker, other) + bound, job.clock(worker))
              << worker << " of " << other;
          ASSERT_LE(job.reads(worker, other), job.clock(other)) << worker << " of " << other;
          if (job.reads(worker, other) < job.clock(worker)) ++behind;
        }
        ASSERT_EQ(job.reads(worker, worker), job.clock(worker)) << "not all of its own";
      }
      job.turn(workers);
    }
    // Nothing is stuck: whoever is behind can always go on.
    for (int round = 0; round < 100; ++round) {
      job.drain();
      const uint32_t slowest =
          *std::ranges::min_element(workers, {}, [&](uint32_t w) { return job.clock(w); });
      ASSERT_TRUE(job.isReady(slowest)) << job.rank(slowest).strategy().describeWait(TensorId{1});
      job.step(slowest);
    }
    for (const uint32_t worker : workers) steps += job.clock(worker);
  }
  EXPECT_GT(steps, seeds * 110U);
  EXPECT_GT(behind, 0U);  // or the test would have shown nothing
}

TEST(Ssp, NobodyEverReadsMoreThanTheBoundBehind) {
  expectNobodyReadsMoreThanTheBoundBehind(base::testsAreShort() ? 24 : 120, {});
}

// All elements are sent, so that they still count.
TEST(Ssp, NobodyDoesSoWithCompressionEither) {
  base::Config config;
  ASSERT_TRUE(config.set(option::kDgc, "on").isOk());
  ASSERT_TRUE(config.set(option::kDgcSparsity, "0").isOk());
  expectNobodyReadsMoreThanTheBoundBehind(base::testsAreShort() ? 12 : 40, config);
}

TEST(Asp, GoesOnWithoutTheOthers) {
  Counting job("asp", "all", 3, 1);
  for (int step = 0; step < 20; ++step) {
    ASSERT_TRUE(job.isReady(0));
    job.step(0);
    job.drain();
  }
  EXPECT_EQ(job.reads(0, 0), 20U);
}

TEST(Ssp, WaitsForTheSlowestAndSaysSo) {
  Counting job("ssp:2", "all", 2, 1);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(job.isReady(0)) << step;
    job.step(0);
    job.drain();
  }
  EXPECT_FALSE(job.isReady(0));  // at clock 3, with the slowest at 0
  bool isNamed = false;
  for (const uint32_t r : {0U, 1U}) {
    const std::string text = job.rank(r).strategy().describeWait(TensorId{1});
    isNamed = isNamed || text.find("waiting for rank 1, at step 0") != std::string::npos;
  }
  EXPECT_TRUE(isNamed);
  job.step(1);
  job.drain();
  EXPECT_TRUE(job.isReady(0));
  EXPECT_EQ(job.reads(0, 1), 1U);
}

TEST(Ssp, ByOptionTheLostAreNotWaitedFor) {
  base::Config config;
  ASSERT_TRUE(config.set(option::kSurviveLoss, "on").isOk());
  Counting job("ssp:2", "dedicated:1", 4, 1, config);
  const auto stepBoth = [&] {
    for (const uint32_t worker : {0U, 2U}) job.step(worker);
    job.drain();
  };
  for (int step = 0; step < 3; ++step) stepBoth();
  EXPECT_FALSE(job.isReady(0));  // rank 1 has not made any
  for (const uint32_t r : {0U, 2U, 3U}) {
    const Strategy& strategy = job.rank(r).strategy();
    EXPECT_TRUE(strategy.losses().goesOnWithout(Rank{1}));
    EXPECT_FALSE(strategy.losses().goesOnWithout(Rank{3}));  // its parameters are nowhere else
    job.rank(r).loop().post([&job, r] { job.rank(r).strategy().losses().forget(Rank{1}); });
  }
  job.drain();
  for (int step = 0; step < 20; ++step) {
    ASSERT_TRUE(job.isReady(0) && job.isReady(2))
        << job.rank(3).strategy().describeWait(TensorId{1});
    stepBoth();
  }
  EXPECT_EQ(job.reads(0, 0), 23U);
  // The bound between those who are left is what it was.
  for (int step = 0; step < 9 && job.isReady(0); ++step) {
    job.step(0);
    job.drain();
  }
  EXPECT_FALSE(job.isReady(0));
  EXPECT_LE(job.clock(0), job.clock(2) + 3);
}

TEST(Asynchronous, WithoutTheOptionTheLossOfAWorkerIsTheEnd) {
  for (const char* algorithm : {"ssp:2", "easgd:2"}) {
    for (const bool survives : {false, true}) {
      base::Config config;
      ASSERT_TRUE(config.set(option::kSurviveLoss, survives ? "on" : "off").isOk());
      SteppedWorld world(algorithm, "dedicated:1", 3, threeTensors(), "sgd:lr=1", false, config);
      EXPECT_EQ(world.ranks()[0]->strategy().losses().goesOnWithout(Rank{1}), survives)
          << algorithm;
      EXPECT_FALSE(world.ranks()[0]->strategy().losses().goesOnWithout(Rank{2})) << algorithm;
    }
  }
}

TEST(Asynchronous, SurvivalIsRefusedWhereItMeansNothing) {
  base::Config config;
  ASSERT_TRUE(config.set(option::kSurviveLoss, "on").isOk());
  plan::PlanSpec spec;
  spec.model.tensors = threeTensors();
  spec.roles = plan::parseRoles("all", 3).value();
  for (const Algorithm* algorithm : {&algorithmNamed("ssp"), &algorithmNamed("easgd")}) {
    spec.strategy = algorithm->name;
    EXPECT_EQ(
        algorithm->choose(config, spec).message(),
        "--survive-loss is for workers that serve nothing, and here all serve: give --servers "
        "dedicated:K");
  }
  spec.strategy = "sluice";
  EXPECT_EQ(rejectIgnoredOptions(config, spec).message(),
            "sluice keeps the ranks in step and cannot go on without one; --survive-loss is for "
            "ssp, easgd");
  spec.strategy = "asp";
  EXPECT_TRUE(rejectIgnoredOptions(config, spec).isOk());
}

TEST(Ssp, SendsParametersBackOnlyWhenTheyAreNeeded) {
  constexpr uint64_t kModel = (2 + 5) * sizeof(float);
  constexpr uint64_t kRounds = 40;
  const auto modelsPerStep = [&](std::string_view algorithm) {
    Counting job(algorithm, "dedicated:1", 5, 1);  // all that is sent is on the wire
    for (uint64_t round = 0; round < kRounds; ++round) {
      for (const uint32_t worker : {0U, 1U, 2U, 3U}) job.step(worker);
      job.drain();
    }
    return static_cast<double>(job.bytesSent()) / static_cast<double>(kModel * 4 * kRounds);
  };
  EXPECT_NEAR(modelsPerStep("asp"), 2, 1e-9);
  EXPECT_NEAR(modelsPerStep("ssp:0"), 2, 1e-9);
  // In step: (1 + 1/(s+1)) models; those who ask before the others have pushed ask again a step
  // sooner.
  for (const int bound : {3, 7}) {
    const double models = modelsPerStep(fmt::format("ssp:{}", bound));
    EXPECT_GE(models, 0.95 * (1 + 1.0 / (bound + 1))) << bound;
    EXPECT_LE(models, 1 + 1.0 / bound) << bound;
  }
}

TEST(Asynchronous, EveryWorkersHyperparametersAreItsOwn) {
  for (const char* servers : {"all", "1", "dedicated:1"}) {
    SteppedWorld world("asp", servers, 3, threeTensors(), "sgd:lr=1");
    std::mt19937 random(5);
    float expected = 0;
    for (uint64_t step = 0; step < 10; ++step) {
      for (const Rank worker : world.plan().roles().workers) {
        SteppedRank& rank = *world.ranks()[index(worker)];
        // Powers of two: every sum below is exact.
        auto values = world.update().values;
        values[0] = static_cast<double>(1U << (random() % 4));
        expected -= static_cast<float>(values[0]);
        rank.loop().post([&rank, values, step] {
          EXPECT_TRUE(rank.strategy().setHyperparameters(values, Step{step}).isOk());
        });
        for (uint32_t t = 3; t-- > 0;) {
          const std::vector<float> ones(world.plan().model().tensors[t].elements, 1);
          rank.gradientReady(TensorId{t}, std::as_bytes(std::span(ones)));
        }
        // Thought of too late for this step: what is under way keeps its own.
        rank.loop().post([&rank, &world, step] {
          auto late = world.update().values;
          late[0] = 1000;
          EXPECT_TRUE(rank.strategy().setHyperparameters(late, Step{step + 1}).isOk());
        });
        runShuffled(world.ranks(), random);
        for (uint32_t t = 0; t < 3; ++t) {
          const std::vector<float> wanted(world.plan().model().tensors[t].elements, expected);
          EXPECT_TRUE(
              std::ranges::equal(rank.result(TensorId{t}), std::as_bytes(std::span(wanted))))
              << servers << " step " << step << " tensor " << t;
        }
      }
    }
  }
}

TEST(Asynchronous, UpdatesWaitForTheWordAndADroppedStepLeavesNoTrace) {
  for (const char* algorithm : {"asp", "ssp:2", "easgd:100", "gosgd:1", "adpsgd"}) {
    SCOPED_TRACE(algorithm);
    SteppedWorld world(algorithm, "all", 1, threeTensors(), "sgd:lr=1",
                       /*updatesWaitForWord=*/true);
    std::mt19937 random(5);
    SteppedRank& rank = *world.ranks()[0];
    float expected = 0;
    for (int step = 0; step < 8; ++step) {
      for (uint32_t t = 3; t-- > 0;) {
        const std::vector<float> ones(world.plan().model().tensors[t].elements, 1);
        rank.gradientReady(TensorId{t}, std::as_bytes(std::span(ones)));
      }
      runShuffled(world.ranks(), random);
      for (uint32_t t = 0; t < 3; ++t) EXPECT_FALSE(rank.gates().isOpen(TensorId{t}));
      const auto decision = step % 3 == 1 ? Decision::kDrop : Decision::kUpdate;
      if (decision == Decision::kUpdate) expected -= 1;
      rank.loop().post([&rank, decision] { EXPECT_TRUE(rank.strategy().decide(decision).isOk()); });
      runShuffled(world.ranks(), random);
      for (uint32_t t = 0; t < 3; ++t) {
        ASSERT_TRUE(rank.gates().isOpen(TensorId{t})) << rank.strategy().describeWait(TensorId{t});
        EXPECT_EQ(rank.gates().isEmpty(TensorId{t}), decision == Decision::kDrop);
        EXPECT_EQ(kernel::loadAt<float>(rank.result(TensorId{t}).data(), 0), expected);
      }
    }
  }
}

TEST(Asynchronous, AWorkerWithoutAGradientHoldsNobodyUp) {
  for (const char* algorithm : {"asp", "ssp:0", "ssp:2", "easgd:2", "gosgd:1", "adpsgd"}) {
    SCOPED_TRACE(algorithm);
    SteppedWorld world(algorithm, "all", 2, threeTensors(), "sgd:lr=1");
    std::mt19937 random(5);
    for (int step = 0; step < 9; ++step) {
      for (uint32_t r = 0; r < 2; ++r) {
        SteppedRank& rank = *world.ranks()[r];
        for (uint32_t t = 3; t-- > 0;) {
          if (r == 0) {
            const std::vector<float> ones(world.plan().model().tensors[t].elements, 1);
            rank.gradientReady(TensorId{t}, std::as_bytes(std::span(ones)));
          } else {
            const Step closed = rank.gates().close(TensorId{t}).value();
            rank.loop().post([&rank, t, closed] {
              rank.strategy().contribute({TensorId{t}, closed, /*hasGradient=*/false});
            });
          }
        }
      }
      runShuffled(world.ranks(), random);
      for (const auto& rank : world.ranks()) {
        for (uint32_t t = 0; t < 3; ++t)
          ASSERT_TRUE(rank->gates().isOpen(TensorId{t}))
              << rank->strategy().describeWait(TensorId{t});
      }
    }
    if (std::string_view(algorithm) == "asp" || std::string_view(algorithm) == "ssp:0") {
      EXPECT_EQ(kernel::loadAt<float>(world.ranks()[0]->result(TensorId{0}).data(), 0), -9);
    }
  }
}

TEST(Asynchronous, RefusesOtherOptimizersInOneLine) {
  plan::PlanSpec spec;
  spec.model.tensors = threeTensors();
  spec.roles = plan::parseRoles("all", 1).value();
  for (const Algorithm* algorithm :
       {&algorithmNamed("asp"), &algorithmNamed("ssp"), &algorithmNamed("easgd"),
        &algorithmNamed("gosgd"), &algorithmNamed("adpsgd")}) {
    const std::string text = refusalOf(*algorithm, spec, "mean-gradient", {});
    EXPECT_NE(text.find("SGD, Adam or AdamW"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::algorithms
