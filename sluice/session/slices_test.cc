// Gradients that come slice by slice from another thread, as a stager copies them from a device:
// with real threads, over trainers.
#include <sluice/session/trainer.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <map>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/mutex.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/options.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>

namespace sluice::session {
namespace {

using namespace std::chrono_literals;
using Numbers = std::vector<float>;

constexpr std::array<size_t, 3> kStagedElements{7, 2, 11};

// Counts stages, and the bytes of results by step and tensor.
class Accounts final : public StageObserver, public algorithms::ResultSink {
 public:
  void onStage(const StageEvent& event) override {
    stages_.with([&](auto& stages) { ++stages[event.stage]; });
  }
  void onWait(const WaitEvent& /*event*/) override {}
  void onResult(const algorithms::SliceResult& result) override {
    bytes_.with([&](auto& bytes) { bytes[{result.step, result.tensor}] += result.bytes; });
  }
  void onNoResult(TensorId tensor, Step step) override {
    bytes_.with([&](auto& bytes) { bytes[{step, tensor}] = 0; });
  }

  size_t stages(Stage stage) {
    return stages_.with([&](auto& stages) { return stages[stage]; });
  }
  // By step and tensor; 0: no result came.
  std::map<std::pair<Step, TensorId>, size_t> bytes() {
    return bytes_.with([](auto& bytes) { return bytes; });
  }

 private:
  base::Guarded<std::map<Stage, size_t>> stages_;
  base::Guarded<std::map<std::pair<Step, TensorId>, size_t>> bytes_;
};

// One rank whose gradients lie on a device: `device` is copied to `mirror` slice by slice.
struct StagedRank {
  std::vector<Numbers> device;
  std::vector<Numbers> mirror;
  std::vector<Numbers> parameters;
  Accounts accounts;
  net::LoopThread thread{"rank"};
  std::unique_ptr<Trainer> trainer;
};

struct StagedOptions {
  std::string algorithm = "p3";
  std::string update = "sgd:lr=0.5";
  uint32_t world = 3;
  bool waitsForWord = false;
  bool listens = true;
};

class StagedWorld final {
 public:
  explicit StagedWorld(const StagedOptions& options)
      : options_(options),
        update_(optimizer::parseOptimizerSpec(options.update).value()),
        hub_(options.world),
        everybody_(options.world) {
    EXPECT_TRUE(config_.set(option::kStallAfter, "50ms").isOk());
    EXPECT_TRUE(config_.set(option::kSliceElements, "2").isOk());
    for (uint32_t r = 0; r < options.world; ++r) ranks_.push_back(std::make_unique<StagedRank>());
    onEveryRank([&](uint32_t r) { start(r); });
  }
  ~StagedWorld() {
    for (auto& rank : ranks_) rank->trainer.reset();
  }
  StagedWorld(const StagedWorld&) = delete;
  StagedWorld& operator=(const StagedWorld&) = delete;

  void onEveryRank(const std::function<void(uint32_t)>& task) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < ranks_.size(); ++r) threads.emplace_back([&, r] { task(r); });
    for (auto& thread : threads) thread.join();
  }

  StagedRank& rank(uint32_t r) { return *ranks_[r]; }
  Trainer& trainer(uint32_t r) { return *ranks_[r]->trainer; }
  size_t slicesOf(uint32_t tensor) { return trainer(0).plan().slicesOf(TensorId{tensor}).size(); }

  bool isMean() const {
    return update_.optimizer->publishes() == optimizer::Publishes::kMeanGradient;
  }
  TensorMemory memoryOf(uint32_t r, uint32_t tensor) {
    Numbers& mirror = ranks_[r]->mirror[tensor];
    Numbers& result = isMean() ? mirror : ranks_[r]->parameters[tensor];
    return {std::as_bytes(std::span(mirror)), std::as_writable_bytes(std::span(result))};
  }

  void announce(uint32_t r, uint32_t tensor) {
    EXPECT_TRUE(trainer(r).gradientComes(TensorId{tensor}, memoryOf(r, tensor)).isOk());
  }
  // Copies one slice and says so.
  void copy(uint32_t r, uint32_t tensor, size_t place) {
    const auto& slice = trainer(r).plan().slicesOf(TensorId{tensor})[place];
    std::copy_n(ranks_[r]->device[tensor].begin() + static_cast<ptrdiff_t>(slice.offset),
                slice.count,
                ranks_[r]->mirror[tensor].begin() + static_cast<ptrdiff_t>(slice.offset));
    trainer(r).slicesReady(TensorId{tensor}, place, 1);
  }

  // One step of one rank. In parts, the word for the update is said while slices still come.
  void step(uint32_t r, int step, bool inParts) {
    StagedRank& rank = *ranks_[r];
    std::vector<std::pair<uint32_t, size_t>> toCopy;
    for (uint32_t t = kStagedElements.size(); t-- > 0;) {
      ASSERT_TRUE(trainer(r).wait(TensorId{t}).isOk());
      for (size_t i = 0; i < rank.device[t].size(); ++i)
        rank.device[t][i] =
            static_cast<float>((r + 3 * t + 5 * static_cast<uint32_t>(step) + i) % 8);
      if (inParts) {
        std::ranges::fill(rank.mirror[t], -1000.F);
        announce(r, t);
        for (size_t place = 0; place < slicesOf(t); ++place) toCopy.emplace_back(t, place);
      } else {
        rank.mirror[t] = rank.device[t];
        ASSERT_TRUE(trainer(r).gradientReady(TensorId{t}, memoryOf(r, t)).isOk());
      }
    }
    std::ranges::shuffle(toCopy, std::mt19937(r + 10 * static_cast<uint32_t>(step)));
    std::thread stager([&] {
      for (const auto& [tensor, place] : toCopy) copy(r, tensor, place);
    });
    if (options_.waitsForWord && step % 3 == 1) {
      trainer(r).drop();
    } else if (options_.waitsForWord) {
      EXPECT_TRUE(trainer(r).update(update_.values).isOk());
    }
    const Status status = trainer(r).waitAll();
    EXPECT_TRUE(status.isOk()) << status.toString();
    stager.join();
  }

  std::vector<Numbers> resultsOf(uint32_t r) {
    return isMean() ? ranks_[r]->mirror : ranks_[r]->parameters;
  }

 private:
  void start(uint32_t r) {
    StagedRank& rank = *ranks_[r];
    plan::PlanSpec spec;
    for (const size_t elements : kStagedElements) {
      spec.model.tensors.push_back({"t" + std::to_string(elements), elements, DType::kF32});
      rank.device.emplace_back(elements);
      rank.mirror.emplace_back(elements);
      rank.parameters.emplace_back(elements, 1.F);
    }
    spec.roles = plan::parseRoles("all", options_.world).value();
    spec.strategy = options_.algorithm;
    ASSERT_TRUE(algorithms::findAlgorithm(spec.strategy).value()->choose(config_, spec).isOk());
    TrainingSpec training{.plan = plan::Plan::make(spec).value(),
                          .update = update_,
                          .memory = {},
                          .updatesWaitForWord = options_.waitsForWord,
                          .results = options_.listens ? &rank.accounts : nullptr};
    for (uint32_t t = 0; t < kStagedElements.size(); ++t) training.memory.push_back(memoryOf(r, t));
    auto trainer = Trainer::start(
        std::move(training), config_, &rank.accounts, [&](fabric::Receiver& receiver) {
          auto fabric = hub_.join(Rank{r}, rank.thread.loop(), receiver);
          everybody_.arrive_and_wait();  // nobody sends before all are there
          return Result<std::unique_ptr<fabric::Fabric>>(std::move(fabric));
        });
    ASSERT_TRUE(trainer.isOk()) << trainer.status().toString();
    rank.trainer = *std::move(trainer);
  }

  const StagedOptions options_;
  const optimizer::OptimizerSpec update_;
  base::Config config_;
  fabric::LoopbackHub hub_;
  std::barrier<> everybody_;
  std::vector<std::unique_ptr<StagedRank>> ranks_;
};

// Returns every rank's results of every step.
std::vector<std::vector<Numbers>> trainStaged(const StagedOptions& options, bool inParts) {
  constexpr int kSteps = 5;
  StagedWorld world(options);
  std::vector<std::vector<Numbers>> results(options.world * kSteps);
  world.onEveryRank([&](uint32_t r) {
    for (int step = 0; step < kSteps; ++step) {
      world.step(r, step, inParts);
      results[r * kSteps + static_cast<size_t>(step)] = world.resultsOf(r);
      // A result may be empty: then it has no bytes.
      const auto bytes = world.rank(r).accounts.bytes();
      for (uint32_t t = 0; options.listens && t < kStagedElements.size(); ++t) {
        const auto found = bytes.find({Step{static_cast<uint64_t>(step)}, TensorId{t}});
        const bool isEmpty = world.trainer(r).isEmpty(TensorId{t});
        EXPECT_TRUE(found != bytes.end()) << "step " << step << " tensor " << t;
        if (found == bytes.end()) continue;
        EXPECT_EQ(found->second, isEmpty ? 0 : kStagedElements[t] * sizeof(float));
      }
    }
  });
  return results;
}

class Staged : public testing::TestWithParam<const char*> {};

TEST_P(Staged, GradientsInPartsGiveTheSameBitsAsWholeOnes) {
  for (const char* update : {"mean-gradient", "sgd:lr=0.5,momentum=0.5"}) {
    SCOPED_TRACE(update);
    const StagedOptions options{.algorithm = GetParam(), .update = update};
    EXPECT_EQ(trainStaged(options, /*inParts=*/true), trainStaged(options, /*inParts=*/false));
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Staged,
                         testing::Values("sluice", "p3", "slicing", "kvstore", "mgp3", "mgwfbp",
                                         "wfbp", "allreduce", "pipe"),
                         [](const auto& each) { return std::string(each.param); });

TEST(StagedGradients, TheWordForAnUpdateWaitsForTheLastSlice) {
  for (const char* algorithm : {"sluice", "p3", "kvstore"}) {
    SCOPED_TRACE(algorithm);
    const StagedOptions options{.algorithm = algorithm, .waitsForWord = true};
    EXPECT_EQ(trainStaged(options, /*inParts=*/true), trainStaged(options, /*inParts=*/false));
  }
}

TEST(StagedGradients, ServersThatDoNotWaitTakeThemToo) {
  for (const char* algorithm : {"asp", "ssp", "easgd", "gosgd", "adpsgd"}) {
    SCOPED_TRACE(algorithm);
    (void)trainStaged({.algorithm = algorithm}, /*inParts=*/true);
  }
}

TEST(StagedGradients, EveryCopyIsAStageOfItsSlice) {
  for (const bool listens : {false, true}) {
    StagedWorld world({.listens = listens});
    world.onEveryRank([&](uint32_t r) { world.step(r, 0, /*inParts=*/true); });
    size_t slices = 0;
    for (uint32_t t = 0; t < kStagedElements.size(); ++t) slices += world.slicesOf(t);
    for (uint32_t r = 0; r < 3; ++r) {
      Accounts& accounts = world.rank(r).accounts;
      EXPECT_EQ(accounts.stages(Stage::kReady), slices);
      EXPECT_EQ(accounts.stages(Stage::kStageOut), slices);
      EXPECT_EQ(accounts.stages(Stage::kStageIn), listens ? slices : 0);
      EXPECT_EQ(accounts.stages(Stage::kApplied), listens ? 0 : slices);  // else the sink says so
    }
  }
}

TEST(StagedGradients, ASliceTravelsBeforeTheOthersAreCopied) {
  StagedWorld world({.algorithm = "p3", .update = "mean-gradient"});
  for (uint32_t r = 0; r < 3; ++r) {
    world.rank(r).device[2].assign(kStagedElements[2], 3.F);
    world.announce(r, 2);
    world.copy(r, 2, 1);
  }
  const auto isHere = [&](uint32_t r) {
    const auto bytes = world.rank(r).accounts.bytes();
    return bytes.contains({Step{0}, TensorId{2}});
  };
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!(isHere(0) && isHere(1) && isHere(2)) && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  for (uint32_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(isHere(r));
    EXPECT_FALSE(world.trainer(r).isReady(TensorId{2}));
    for (size_t place = 0; place < world.slicesOf(2); ++place) {
      if (place != 1) world.copy(r, 2, place);
    }
  }
  for (uint32_t r = 0; r < 3; ++r) EXPECT_TRUE(world.trainer(r).wait(TensorId{2}).isOk());
}

// Half of a gradient has come, and of another nothing.
class HalfCome : public testing::Test {
 protected:
  void begin(uint32_t r) {
    for (const uint32_t t : {2U, 0U}) world_.announce(r, t);
    for (const size_t place : {0U, 2U}) world_.copy(r, 2, place);
  }
  // The session has failed: slices that still come change nothing.
  void expectEnded(uint32_t r, const std::string& why) {
    for (const uint32_t t : {2U, 0U}) {
      const Status status = world_.trainer(r).wait(TensorId{t});
      EXPECT_FALSE(status.isOk());
      EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
    }
    for (const size_t place : {1U, 3U}) world_.copy(r, 2, place);
    EXPECT_FALSE(world_.trainer(r).wait(TensorId{2}).isOk());
  }

  StagedWorld world_{StagedOptions{.update = "mean-gradient"}};
};

TEST_F(HalfCome, AFailedCopyEndsIt) {
  begin(0);
  world_.trainer(0).fail({Code::kInternal, "the device is gone"});
  expectEnded(0, "the device is gone");
}

TEST_F(HalfCome, ALostRankEndsIt) {
  begin(0);
  world_.rank(1).trainer.reset();  // no goodbye
  expectEnded(0, "rank 1");
}

TEST_F(HalfCome, ARankThatLeavesEndsIt) {
  begin(0);
  EXPECT_TRUE(world_.trainer(1).leave([] { return base::ok(); }).isOk());
  expectEnded(0, "rank 1 has");
}

TEST_F(HalfCome, TheEndOfAnotherRanksStepsEndsIt) {
  begin(0);
  world_.trainer(0).endAfter(0, 0, {Code::kPeerLost, "rank 2 takes part no longer"});
  expectEnded(0, "rank 2 takes part no longer");
}

TEST_F(HalfCome, AStallNamesTheDevice) {
  begin(0);
  testing::internal::CaptureStderr();
  std::thread waiting([&] { EXPECT_FALSE(world_.trainer(0).wait(TensorId{2}).isOk()); });
  std::this_thread::sleep_for(400ms);  // a stall is reported every 50 ms
  world_.trainer(0).fail({Code::kCancelled, "enough"});
  waiting.join();
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string wanted = "4 of 6 slices not yet copied from the device";
  EXPECT_NE(said.find(wanted), std::string::npos) << said;
}

TEST(StagedWord, AWordForAHalfComeGradientEndsWithTheSession) {
  StagedWorld world({.waitsForWord = true});
  world.announce(0, 2);
  world.copy(0, 2, 0);
  EXPECT_TRUE(world.trainer(0).update(optimizer::parseOptimizerSpec("sgd").value().values).isOk());
  world.trainer(0).fail({Code::kInternal, "the device is gone"});
  EXPECT_FALSE(world.trainer(0).wait(TensorId{2}).isOk());
}

}  // namespace
}  // namespace sluice::session
