#include <sluice/algorithms/dgc/allgather.h>

#include <cmath>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/options.h>
#include <sluice/data/kernel/element.h>

namespace sluice::algorithms {
namespace {

class SparseJob final {
 public:
  SparseJob(uint32_t world, std::string_view update, const std::string& sparsity,
            bool waits = false, StageObserver* observer = nullptr)
      : world_("allreduce", "all", world, {{"a", 2000, DType::kF32}, {"b", 3, DType::kF32}}, update,
               waits, withDgc(sparsity), {}, observer),
        random_(world) {}

  static base::Config withDgc(const std::string& sparsity) {
    base::Config config;
    SLUICE_CHECK(config.set(option::kDgc, "on").isOk());
    SLUICE_CHECK(config.set(option::kDgcSparsity, sparsity).isOk());
    return config;
  }

  // Whole numbers, so that every sum is exact.
  void step() {
    for (auto& rank : world_.ranks()) {
      for (const uint32_t t : {1U, 0U}) {
        std::vector<float> gradient(world_.plan().model().tensors[t].elements);
        for (float& g : gradient) g = static_cast<float>(random_() % 64) - 32;
        if (t == 0) total_ += gradient[7];
        rank->gradientReady(TensorId{t}, std::as_bytes(std::span(gradient)));
        if (random_() % 2 == 0) rank->loop().runOne();
      }
    }
    runShuffled(world_.ranks(), random_);
  }
  void decide(Decision decision) {
    for (auto& rank : world_.ranks())
      rank->loop().post(
          [&rank, decision] { EXPECT_TRUE(rank->strategy().decide(decision).isOk()); });
    runShuffled(world_.ranks(), random_);
  }
  bool isReady() {
    return std::ranges::all_of(world_.ranks(), [](auto& rank) {
      return rank->gates().isOpen(TensorId{0}) && rank->gates().isOpen(TensorId{1});
    });
  }
  void expectAllEqual() {
    for (auto& rank : world_.ranks()) {
      for (const uint32_t t : {0U, 1U})
        ASSERT_TRUE(
            std::ranges::equal(rank->result(TensorId{t}), world_.ranks()[0]->result(TensorId{t})));
    }
  }
  float parameter(size_t element) {
    return kernel::loadAt<float>(world_.ranks()[0]->result(TensorId{0}).data(), element);
  }
  float total() const { return total_; }  // of all gradients of one element
  uint64_t bytesSent() {
    uint64_t bytes = 0;
    for (auto& rank : world_.ranks()) bytes += rank->fabric().counters().bytesSent;
    return bytes;
  }

 private:
  SteppedWorld world_;
  std::mt19937 random_;
  float total_ = 0;
};

TEST(SparseAllgather, RanksStayEqualAndSendLittle) {
  for (const uint32_t world : {1U, 2U, 3U, 8U}) {
    SCOPED_TRACE(world);
    SparseJob job(world, "sgd:lr=0.125,momentum=0.9,weight_decay=0.01", "0.99");
    for (int step = 0; step < 10; ++step) {
      job.step();
      ASSERT_TRUE(job.isReady());
      job.expectAllEqual();
    }
    // 20 of 2000 elements at five or six bytes each, to all others.
    EXPECT_LE(job.bytesSent(), 10 * world * (world - 1) * (20 * 6 + 2 * 20));
  }
}

TEST(SparseAllgather, WithSparsityZeroItIsPlainSgd) {
  SparseJob job(4, "sgd:lr=0.5,momentum=0.9", "0");  // an element that is sent forgets its momentum
  for (int step = 0; step < 8; ++step) job.step();
  EXPECT_EQ(job.parameter(7), -0.5F * job.total() / 4);
}

// The same bits, sent at another time.
TEST(SparseAllgather, WfbpSendsDuringBackwardAndAllreduceAfterIt) {
  for (const auto& [algorithm, early] : {std::pair("allreduce", 0U), std::pair("wfbp", 1U)}) {
    SCOPED_TRACE(algorithm);
    SteppedWorld world(algorithm, "all", 2, {{"a", 2000, DType::kF32}, {"b", 3, DType::kF32}},
                       "sgd:lr=1", /*updatesWaitForWord=*/false, SparseJob::withDgc("0.99"));
    std::mt19937 random(1);
    const auto handOver = [&](uint32_t t) {
      const std::vector<float> ones(world.plan().model().tensors[t].elements, 1);
      for (auto& rank : world.ranks())
        rank->gradientReady(TensorId{t}, std::as_bytes(std::span(ones)));
      runShuffled(world.ranks(), random);
    };
    handOver(1);
    for (auto& rank : world.ranks()) EXPECT_EQ(rank->fabric().counters().messagesSent, early);
    handOver(0);
    for (auto& rank : world.ranks()) {
      EXPECT_EQ(rank->fabric().counters().messagesSent, 2U);
      EXPECT_EQ(kernel::loadAt<float>(rank->result(TensorId{1}).data(), 0), -1);
    }
  }
}

TEST(SparseAllgather, ReportsEveryStage) {
  struct Counter final : StageObserver {
    void onStage(const StageEvent& event) override { ++count[event.stage]; }
    void onWait(const WaitEvent& /*event*/) override {}
    std::map<Stage, size_t> count;
  } counter;
  SparseJob job(3, "sgd:lr=0.5", "0", /*waits=*/false, &counter);
  job.step();
  ASSERT_TRUE(job.isReady());
  constexpr size_t kTensors = 2;  // each is one slice
  constexpr size_t kRanks = 3;
  const std::map<Stage, size_t> expected{{Stage::kQueued, kTensors * kRanks * (kRanks - 1)},
                                         {Stage::kPush, kTensors * kRanks * (kRanks - 1)},
                                         {Stage::kCollect, kTensors * kRanks * kRanks},
                                         {Stage::kReduce, kTensors * kRanks},
                                         {Stage::kUpdate, kTensors * kRanks},
                                         {Stage::kApplied, kTensors * kRanks}};
  EXPECT_EQ(counter.count, expected);
}

TEST(SparseAllgather, ADroppedStepWasNever) {
  SparseJob job(2, "sgd:lr=0.5", "0", /*waits=*/true);
  job.step();
  EXPECT_FALSE(job.isReady());
  job.decide(Decision::kUpdate);
  ASSERT_TRUE(job.isReady());
  const float after = job.parameter(7);
  EXPECT_EQ(after, -0.5F * job.total() / 2);
  job.step();
  job.decide(Decision::kDrop);
  ASSERT_TRUE(job.isReady());
  EXPECT_EQ(job.parameter(7), after);
  job.step();
  job.decide(Decision::kUpdate);
  ASSERT_TRUE(job.isReady());
  job.expectAllEqual();
}

TEST(SparseAllgather, WhatItCannotDoIsRefusedInOneLine) {
  struct Wrong {
    const base::Option& option;
    const char* value;
  };
  for (const Wrong& wrong : {Wrong{option::kDgcSparsity, "1.5"}, Wrong{option::kDgcSparsity, "-1"},
                             Wrong{option::kDgcClip, "-1"}, Wrong{option::kDgcWarmUp, "-1"},
                             Wrong{option::kCodec, "fp16"}}) {
    base::Config config;
    ASSERT_TRUE(config.set(option::kDgc, "on").isOk());
    ASSERT_TRUE(config.set(wrong.option, wrong.value).isOk());
    plan::PlanSpec spec;
    spec.model.tensors = {{"w", 4, DType::kF32}};
    spec.roles = plan::parseRoles("all", 2).value();
    spec.strategy = "allreduce";
    EXPECT_EQ(algorithmNamed("allreduce").choose(config, spec).code(), Code::kInvalidArgument)
        << wrong.option.name;
  }
  base::Config config;
  ASSERT_TRUE(config.set(option::kDgc, "on").isOk());
  plan::PlanSpec spec;
  spec.model.tensors = {{"w", 4, DType::kF32}};
  spec.roles = plan::parseRoles("all", 2).value();
  spec.strategy = "p3";
  ASSERT_TRUE(algorithmNamed("p3").choose(config, spec).isOk());
  EXPECT_EQ(rejectIgnoredOptions(config, spec).message(),
            "p3 cannot compress with --dgc; it is for sluice, wfbp, allreduce, asp, ssp");
}

}  // namespace
}  // namespace sluice::algorithms
