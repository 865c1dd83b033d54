#include <sluice/session/trainer.h>

#include <array>
#include <atomic>
#include <barrier>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/server/answering.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/options.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>

namespace sluice::session {
namespace {

using namespace std::chrono_literals;

// One rank of a job whose ranks are threads.
struct TestRank {
  std::vector<std::vector<float>> parameters{{1, 2, 3}, {4, 5}};
  std::vector<std::vector<float>> gradients{{0, 0, 0}, {0, 0}};
  net::LoopThread thread{"rank"};
  fabric::Fabric* fabric = nullptr;  // the trainer's
  std::unique_ptr<Trainer> trainer;
};

class TrainerTest : public testing::Test {
 protected:
  void start(uint32_t world, const std::string& update, const std::string& servers = "all",
             const std::string& algorithmName = "p3") {
    hub_ = std::make_unique<fabric::LoopbackHub>(world);
    ASSERT_TRUE(config_.set(option::kStallAfter, "50ms").isOk());
    // Five slices: each server has some, so that all ranks talk with each server. A rank that never
    // talked with a lost rank hears of the loss from the session.
    ASSERT_TRUE(config_.set(option::kSliceElements, "1").isOk());
    everybody_ = std::make_unique<std::barrier<>>(world);
    for (uint32_t r = 0; r < world; ++r) ranks_.push_back(std::make_unique<TestRank>());
    // A start waits for the others' starts, so each has its own thread.
    onEveryRank([&](uint32_t r) {
      TestRank& rank = *ranks_[r];
      rank.parameters[0][0] = firstParameter_(r);
      plan::PlanSpec spec;
      spec.model.tensors = {{"w", 3, DType::kF32}, {"b", 2, DType::kF32}};
      spec.roles = plan::parseRoles(servers, world).value();
      spec.strategy = algorithmName;
      ASSERT_TRUE(algorithms::findAlgorithm(algorithmName).value()->choose(config_, spec).isOk());
      TrainingSpec training{
          plan::Plan::make(spec).value(), optimizer::parseOptimizerSpec(update).value(), {}};
      if (spec.roles.isWorker(Rank{r})) {
        for (size_t t = 0; t < 2; ++t) {
          training.memory.push_back({std::as_bytes(std::span(rank.gradients[t])),
                                     std::as_writable_bytes(std::span(rank.parameters[t]))});
        }
      }
      auto trainer =
          Trainer::start(std::move(training), config_, nullptr, [&](fabric::Receiver& receiver) {
            auto fabric = hub_->join(Rank{r}, rank.thread.loop(), receiver);
            rank.fabric = fabric.get();
            everybody_->arrive_and_wait();  // nobody sends before all are there
            return Result<std::unique_ptr<fabric::Fabric>>(std::move(fabric));
          });
      ASSERT_TRUE(trainer.isOk()) << trainer.status().toString();
      rank.trainer = *std::move(trainer);
    });
  }
  void TearDown() override {
    for (auto& rank : ranks_) rank->trainer.reset();
  }

  void onEveryRank(const std::function<void(uint32_t)>& task) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < ranks_.size(); ++r) threads.emplace_back([&, r] { task(r); });
    for (auto& thread : threads) thread.join();
  }

  std::function<Status()> everybody() {
    return [this] {
      everybody_->arrive_and_wait();
      return base::ok();
    };
  }

  // Pushes a slice that is too short by half.
  void sendNonsense(uint32_t from, uint32_t to) {
    static constexpr std::array<std::byte, 2> kShort{};
    const auto done = std::make_shared<std::promise<void>>();
    ranks_[from]->fabric->send(
        Rank{to}, fabric::Lane::kBulk,
        {.stage = Stage::kPush, .flags = wire::Flags::kEncoded, .dtype = DType::kF32},
        {kShort.data(), kShort.size()}, [done](const Status&) { done->set_value(); });
    done->get_future().wait();
  }

  void makeGradient(uint32_t r, uint32_t tensor, float value) {
    std::ranges::fill(ranks_[r]->gradients[tensor], value);
    EXPECT_TRUE(ranks_[r]->trainer->gradientReady(TensorId{tensor}).isOk());
  }

  base::Config config_;
  std::function<float(uint32_t)> firstParameter_ = [](uint32_t) { return 1.0F; };
  std::unique_ptr<fabric::LoopbackHub> hub_;
  std::unique_ptr<std::barrier<>> everybody_;
  std::vector<std::unique_ptr<TestRank>> ranks_;
};

TEST_F(TrainerTest, TrainsAndLeavesInGoodOrder) {
  start(3, "sgd:lr=1");
  onEveryRank([&](uint32_t r) {
    for (int step = 0; step < 5; ++step) {
      for (const uint32_t t : {0U, 1U}) EXPECT_TRUE(ranks_[r]->trainer->wait(TensorId{t}).isOk());
      for (const uint32_t t : {1U, 0U}) makeGradient(r, t, static_cast<float>(r));  // the mean is 1
    }
    EXPECT_TRUE(ranks_[r]->trainer->leave(everybody()).isOk());
  });
  for (const auto& rank : ranks_) {
    EXPECT_EQ(rank->parameters[0], (std::vector<float>{-4, -3, -2}));
    EXPECT_EQ(rank->parameters[1], (std::vector<float>{-1, 0}));
  }
}

TEST_F(TrainerTest, BroadcastsOneRanksBytes) {
  start(2, "mean-gradient");
  onEveryRank([&](uint32_t r) {
    auto& data = ranks_[r]->gradients[0];
    std::ranges::fill(data, static_cast<float>(r + 7));
    EXPECT_TRUE(
        ranks_[r]->trainer->broadcast(Rank{1}, std::as_writable_bytes(std::span(data))).isOk());
    EXPECT_EQ(data, (std::vector<float>{8, 8, 8}));
  });
}

TEST_F(TrainerTest, EverybodyBeginsWithTheLowestWorkersParameters) {
  firstParameter_ = [](uint32_t r) { return static_cast<float>(10 * (r + 1)); };
  start(3, "sgd:lr=1");
  for (const auto& rank : ranks_) EXPECT_EQ(rank->parameters[0], (std::vector<float>{10, 2, 3}));
}

TEST_F(TrainerTest, ARankThatOnlyServesHasNothingToDoButLeave) {
  start(3, "sgd:lr=1", "dedicated:1");
  onEveryRank([&](uint32_t r) {
    if (r < 2) {
      for (const uint32_t t : {1U, 0U}) makeGradient(r, t, 1);
    }
    EXPECT_TRUE(ranks_[r]->trainer->leave(everybody()).isOk());
  });
  EXPECT_EQ(ranks_[1]->parameters[0], (std::vector<float>{0, 1, 2}));
}

TEST_F(TrainerTest, HyperparametersChangeFromStepToStep) {
  start(2, "sgd:lr=1");
  onEveryRank([&](uint32_t r) {
    for (const double rate : {1.0, 0.5, 0.25}) {
      auto values = optimizer::parseOptimizerSpec("sgd").value().values;
      values[0] = rate;
      EXPECT_TRUE(ranks_[r]->trainer->setHyperparameters(values).isOk());
      for (const uint32_t t : {1U, 0U}) makeGradient(r, t, 1);
      EXPECT_TRUE(ranks_[r]->trainer->waitAll().isOk());
    }
  });
  for (const auto& rank : ranks_) EXPECT_EQ(rank->parameters[1], (std::vector<float>{2.25, 3.25}));
}

TEST_F(TrainerTest, RanksThatOnlyServeAreToldTheHyperparameters) {
  start(3, "sgd:lr=1", "dedicated:1");
  onEveryRank([&](uint32_t r) {
    for (const double rate : {1.0, 0.5, 0.25}) {
      if (r == 2) break;  // only serves
      auto values = optimizer::parseOptimizerSpec("sgd").value().values;
      values[0] = rate;
      EXPECT_TRUE(ranks_[r]->trainer->setHyperparameters(values).isOk());
      for (const uint32_t t : {1U, 0U}) makeGradient(r, t, 1);
      // The new values are for the next step: the step under way keeps its own.
      values[0] = 100;
      EXPECT_TRUE(ranks_[r]->trainer->setHyperparameters(values).isOk());
      EXPECT_TRUE(ranks_[r]->trainer->waitAll().isOk());
    }
    EXPECT_TRUE(ranks_[r]->trainer->leave(everybody()).isOk());
  });
  for (const uint32_t r : {0U, 1U})
    EXPECT_EQ(ranks_[r]->parameters[1], (std::vector<float>{2.25, 3.25}));
}

// Trains with real threads, whose times differ, and with a boundary at the end. Every rank has the
// same parameters, whatever the groups become.
TEST_F(TrainerTest, GroupsThatChangeWithTheTimesKeepRanksEqual) {
  ASSERT_TRUE(config_.set(option::kReplanSteps, "2").isOk());
  ASSERT_TRUE(config_.set(option::kComputeTime, "100s").isOk());
  start(3, "sgd:lr=1", "all", "mgwfbp");
  onEveryRank([&](uint32_t r) {
    for (int step = 0; step < 60; ++step) {
      for (const uint32_t t : {1U, 0U}) makeGradient(r, t, static_cast<float>(r));  // the mean is 1
      ASSERT_TRUE(ranks_[r]->trainer->waitAll().isOk());
      EXPECT_TRUE(step % 20 != 1 || ranks_[r]->trainer->takeState().isOk());
    }
    EXPECT_TRUE(ranks_[r]->trainer->leave(everybody()).isOk());
  });
  for (const auto& rank : ranks_) EXPECT_EQ(rank->parameters[1], (std::vector<float>{-56, -55}));
}

TEST_F(TrainerTest, ALostRankEndsEveryWaitByName) {
  start(3, "mean-gradient");
  onEveryRank([&](uint32_t r) {
    if (r == 1) return ranks_[r]->trainer.reset();  // no goodbye
    for (const uint32_t t : {1U, 0U}) makeGradient(r, t, 1);
    const Status status = ranks_[r]->trainer->waitAll();
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
  });
}

class LostWorkerTest : public TrainerTest,
                       public testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(LostWorkerTest, TheOthersGoOn) {
  const auto [algorithm, servers] = GetParam();
  ASSERT_TRUE(config_.set(*base::findOption("gossip-probability"), "1").isOk());
  ASSERT_TRUE(config_.set(option::kSurviveLoss, "on").isOk());
  start(4, "sgd:lr=1", servers, algorithm);
  onEveryRank([&](uint32_t r) {
    if (r == 3 && std::string_view(servers) != "all") return;  // only serves
    for (int step = 0; step < 300; ++step) {
      for (const uint32_t t : {1U, 0U}) makeGradient(r, t, 1);
      const Status status = ranks_[r]->trainer->waitAll();
      ASSERT_TRUE(status.isOk()) << "rank " << r << " step " << step << ": " << status.toString();
      if (r == 1 && step == 20) return ranks_[r]->trainer.reset();  // no goodbye
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, LostWorkerTest,
                         testing::Values(std::pair("asp", "dedicated:1"),
                                         std::pair("ssp", "dedicated:1"),
                                         std::pair("easgd", "dedicated:1"),
                                         std::pair("gosgd", "all"), std::pair("adpsgd", "all")),
                         [](const auto& each) { return each.param.first; });

// Returns the status that a session gets at the end, once a rank is lost.
Status somebodyIsLost() {
  return {Code::kPeerLost, "rank 1 is gone"};
}

TEST_F(TrainerTest, AServerStaysForThoseWhoGoOn) {
  start(4, "sgd:lr=1", "dedicated:1", "asp");
  std::atomic<int> done = 0;
  onEveryRank([&](uint32_t r) {
    Trainer& trainer = *ranks_[r]->trainer;
    if (r == 1) return ranks_[r]->trainer.reset();  // no goodbye
    if (r == 3) {
      const Status status = trainer.leave(somebodyIsLost);
      EXPECT_TRUE(status.isOk()) << status.toString();
      EXPECT_EQ(done, 2) << "the server has gone before its workers";
      return;
    }
    for (int step = 0; step < 200; ++step) {
      for (const uint32_t t : {1U, 0U}) makeGradient(r, t, 1);
      const Status status = trainer.waitAll();
      ASSERT_TRUE(status.isOk()) << "rank " << r << " step " << step << ": " << status.toString();
    }
    ++done;
    const Status status = trainer.leave(somebodyIsLost);
    EXPECT_TRUE(status.isOk()) << status.toString();
  });
}

TEST_F(TrainerTest, AServerGoesOnceAllItsWorkersAreDone) {
  start(3, "sgd:lr=1", "1", "asp");
  onEveryRank([&](uint32_t r) {
    Trainer& trainer = *ranks_[r]->trainer;
    if (r != 0)
      return;  // the others are not lost and do not leave: they only say that they are done
    auto& loop = ranks_[0]->thread.loop();
    for (const uint32_t other : {1U, 2U})
      loop.post([&trainer, other] { trainer.noteDone(Rank{other}); });
    EXPECT_TRUE(trainer.leave(somebodyIsLost).isOk());
  });
}

TEST_F(TrainerTest, AStaleWorkerEndsWithTheNameOfTheLost) {
  start(3, "sgd:lr=1", "dedicated:1", "ssp");
  onEveryRank([&](uint32_t r) {
    if (r == 2) return;                             // only serves
    if (r == 1) return ranks_[r]->trainer.reset();  // no goodbye
    Status status;
    for (int step = 0; step < 20 && status.isOk(); ++step) {
      for (const uint32_t t : {1U, 0U}) makeGradient(r, t, 1);
      status = ranks_[r]->trainer->waitAll();
    }
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
  });
}

TEST_F(TrainerTest, ARankThatLeavesTooEarlyIsNamed) {
  start(2, "mean-gradient");
  onEveryRank([&](uint32_t r) {
    if (r == 1) {
      EXPECT_TRUE(ranks_[r]->trainer->leave([] { return base::ok(); }).isOk());
      return;
    }
    for (const uint32_t t : {1U, 0U}) makeGradient(r, t, 1);
    const Status status = ranks_[r]->trainer->waitAll();
    EXPECT_FALSE(status.isOk());
    EXPECT_NE(status.message().find("rank 1 has"), std::string::npos) << status.message();
  });
}

TEST_F(TrainerTest, AResultThatNothingDelaysIsAnErrorAndNoAbort) {
  start(2, "sgd:lr=1");
  std::vector<float> result(3);
  EXPECT_TRUE(ranks_[0]
                  ->trainer->handOutDelayed(TensorId{0}, std::as_writable_bytes(std::span(result)))
                  .isOk());
  const Status status = ranks_[0]->trainer->wait(TensorId{0});
  EXPECT_NE(status.message().find("this algorithm delays no results"), std::string::npos)
      << status.message();
}

// Rank 1 ends because rank 2 is lost; its goodbye may come before the news of the loss.
TEST_F(TrainerTest, ARankThatEndsAfterALossIsNotNamedInThePlaceOfTheLostOne) {
  start(3, "mean-gradient");
  EXPECT_TRUE(ranks_[1]->trainer->leave([] { return base::ok(); }).isOk());
  for (const uint32_t t : {1U, 0U}) makeGradient(0, t, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ranks_[2]->trainer.reset();  // no goodbye
  const Status status = ranks_[0]->trainer->waitAll();
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 2 is lost"), std::string::npos) << status.message();
}

TEST_F(TrainerTest, ARankWhoseMessageIsRefusedIsLostByNameAndWithTheReason) {
  start(3, "mean-gradient", "1");
  sendNonsense(/*from=*/1, /*to=*/0);
  for (const uint32_t r : {0U, 1U}) {
    makeGradient(r, 0, 1);
    const Status status = ranks_[r]->trainer->wait(TensorId{0});
    EXPECT_EQ(status.code(), Code::kPeerLost) << r;
    EXPECT_NE(status.message().find("2 bytes"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("rank 0 refuses"), std::string::npos) << status.message();
  }
}

TEST_F(TrainerTest, OthersGoOnWithoutARankWhoseMessageIsRefusedIfTheyMay) {
  start(3, "sgd:lr=1", "dedicated:1", "asp");
  sendNonsense(/*from=*/1, /*to=*/2);
  for (int step = 0; step < 3; ++step) {
    for (const uint32_t tensor : {1U, 0U}) makeGradient(0, tensor, 1);
    EXPECT_TRUE(ranks_[0]->trainer->waitAll().isOk());
  }
  EXPECT_EQ(ranks_[0]->parameters[1][0], 1);  // 4, less three steps
  makeGradient(1, 0, 1);
  EXPECT_EQ(ranks_[1]->trainer->wait(TensorId{0}).code(), Code::kPeerLost);
}

TEST_F(TrainerTest, MemoryWithAnOwnerOutlivesAnErrorUntilTheSessionIsGone) {
  start(2, "mean-gradient");
  auto owner = std::make_shared<std::vector<std::byte>>(3 * sizeof(float));
  const std::weak_ptr<const void> alive = owner;
  EXPECT_TRUE(ranks_[0]->trainer->gradientReady(TensorId{0}, {*owner, *owner, owner}).isOk());
  ranks_[1]->trainer.reset();
  EXPECT_EQ(ranks_[0]->trainer->wait(TensorId{0}).code(), Code::kPeerLost);
  owner.reset();
  EXPECT_FALSE(alive.expired());
  // The error stays: later calls neither replace it nor begin anything.
  EXPECT_TRUE(ranks_[0]->trainer->gradientReady(TensorId{0}).isOk());
  EXPECT_EQ(ranks_[0]->trainer->wait(TensorId{0}).code(), Code::kPeerLost);
  EXPECT_FALSE(alive.expired());
  ranks_[0]->trainer.reset();
  EXPECT_TRUE(alive.expired());
}

TEST_F(TrainerTest, AGradientBeforeTheLastResultIsRefused) {
  start(2, "mean-gradient");
  makeGradient(0, 0, 1);
  EXPECT_EQ(ranks_[0]->trainer->gradientReady(TensorId{0}).code(), Code::kInvalidArgument);
  makeGradient(1, 0, 3);
  EXPECT_TRUE(ranks_[0]->trainer->wait(TensorId{0}).isOk());
}

}  // namespace
}  // namespace sluice::session
