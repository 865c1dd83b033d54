#include <sluice/data/shard/shard.h>

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include <sluice/base/testing/manual_clock.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::shard {
namespace {

using kernel::TestNumbers;

plan::Plan makePlan(uint32_t world, DType dtype, uint64_t elements, uint64_t sliceElements,
                    std::string_view servers = "1") {
  plan::PlanSpec spec;
  spec.model.tensors = {{"w", elements, dtype}};
  spec.roles = plan::parseRoles(servers, world).value();
  spec.slicing.placement = plan::Placement::kRoundRobin;
  spec.slicing.sliceElements = sliceElements;
  spec.strategy = "test";
  return plan::Plan::make(std::move(spec)).value();
}

std::unique_ptr<Shard> makeShard(const plan::Plan& plan, Rank self, std::string_view optimizer,
                                 StageObserver* observer = nullptr) {
  static const base::ManualClock kClock;
  return Shard::make(plan, self, optimizer::parseOptimizerSpec(optimizer).value(), kClock, observer)
      .value();
}

// Brings one part, over landing() and arrived() or, for the shard's own rank, by contribute().
bool bring(Shard& shard, Rank self, SliceId slice, Rank from, Step step,
           std::span<const std::byte> part) {
  if (from == self) return shard.contribute(slice, from, step, part).value();
  std::ranges::copy(part, shard.landing(slice, from, step, part.size()).value().begin());
  return shard.arrived(slice, from);
}

TEST(Shard, HyperparametersOfAFinishedStepOrFarAheadAreRefused) {
  const plan::Plan plan = makePlan(1, DType::kF32, 2, 2);
  const auto shard = makeShard(plan, Rank{0}, "sgd:lr=1");
  const std::vector<double> values = optimizer::parseOptimizerSpec("sgd:lr=2").value().values;
  const std::vector<std::byte> part(2 * sizeof(float));
  for (uint64_t step = 0; step < 3; ++step) {
    EXPECT_TRUE(shard->setHyperparameters(values, Step{step}).isOk());
    EXPECT_TRUE(bring(*shard, Rank{0}, SliceId{0}, Rank{0}, Step{step}, part));
  }
  EXPECT_EQ(shard->setHyperparameters(values, Step{2}).code(), Code::kRefused);
  EXPECT_EQ(shard->setHyperparameters(values, Step{0}).code(), Code::kRefused);
  EXPECT_EQ(shard->setHyperparameters(values, Step{1000}).code(), Code::kRefused);
  EXPECT_TRUE(shard->setHyperparameters(values, Step{3}).isOk());
  EXPECT_TRUE(bring(*shard, Rank{0}, SliceId{0}, Rank{0}, Step{3}, part));
}

TEST(Shard, SumsInRankOrderWhateverTheOrderOfArrival) {
  std::mt19937 random(7);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const uint32_t world : {1U, 2U, 3U, 8U}) {
      constexpr uint64_t kElements = 1000;
      const plan::Plan plan = makePlan(world, dtype, kElements, kElements);
      const auto shard = makeShard(plan, Rank{0}, "mean-gradient");
      for (uint64_t step = 0; step < 4; ++step) {
        TestNumbers numbers(world * 100 + step);
        std::vector<std::vector<std::byte>> parts;
        for (uint32_t r = 0; r < world; ++r) parts.push_back(numbers.elements(dtype, kElements));

        std::vector<std::byte> sum(kElements * sizeOf(kernel::accumulatorOf(dtype)));
        kernel::setScaled(dtype, sum, parts[0], kernel::meanScale(world));
        for (uint32_t r = 1; r < world; ++r)
          kernel::addScaled(dtype, sum, parts[r], kernel::meanScale(world));
        std::vector<std::byte> expected(kElements * sizeOf(dtype));
        kernel::narrow(dtype, expected, sum);

        std::vector<uint32_t> order(world);
        std::iota(order.begin(), order.end(), 0U);
        std::ranges::shuffle(order, random);
        for (const uint32_t r : order) {
          const bool last = r == order.back();
          EXPECT_EQ(bring(*shard, Rank{0}, SliceId{0}, Rank{r}, Step{step}, parts[r]), last);
        }
        EXPECT_TRUE(std::ranges::equal(shard->result(SliceId{0}), expected))
            << name(dtype) << " of " << world;
      }
    }
  }
}

TEST(Shard, AVetoedStepChangesNothing) {
  const plan::Plan plan = makePlan(2, DType::kF32, 2, 2);
  const auto shard = makeShard(plan, Rank{0}, "sgd:lr=1");
  const std::array<float, 2> start{10, 20};
  const std::array<float, 2> ones{1, 1};
  shard->setParameters(SliceId{0}, std::as_bytes(std::span(start)));
  EXPECT_FALSE(
      bring(*shard, Rank{0}, SliceId{0}, Rank{1}, Step{0}, std::as_bytes(std::span(ones))));
  EXPECT_TRUE(shard->contributeVeto(SliceId{0}, Rank{0}, Step{0}).value());
  EXPECT_TRUE(shard->isEmpty(SliceId{0}));
  EXPECT_TRUE(std::ranges::equal(shard->result(SliceId{0}), std::as_bytes(std::span(start))));

  EXPECT_FALSE(shard->contributeVeto(SliceId{0}, Rank{1}, Step{0}).isOk());  // that step is over
  EXPECT_FALSE(
      bring(*shard, Rank{0}, SliceId{0}, Rank{0}, Step{1}, std::as_bytes(std::span(ones))));
  EXPECT_TRUE(bring(*shard, Rank{0}, SliceId{0}, Rank{1}, Step{1}, std::as_bytes(std::span(ones))));
  EXPECT_FALSE(shard->isEmpty(SliceId{0}));
  const std::array<float, 2> after{9, 19};
  EXPECT_TRUE(std::ranges::equal(shard->result(SliceId{0}), std::as_bytes(std::span(after))));
}

TEST(Shard, UpdatesTheParametersItWasGiven) {
  const plan::Plan plan = makePlan(2, DType::kF32, 2, 2);
  const auto shard = makeShard(plan, Rank{0}, "sgd:lr=0.5");
  const std::array<float, 2> start{10, 20};
  shard->setParameters(SliceId{0}, std::as_bytes(std::span(start)));
  const auto stepWith = [&](uint64_t step, std::array<float, 2> a, std::array<float, 2> b) {
    EXPECT_FALSE(
        bring(*shard, Rank{0}, SliceId{0}, Rank{1}, Step{step}, std::as_bytes(std::span(b))));
    EXPECT_TRUE(
        bring(*shard, Rank{0}, SliceId{0}, Rank{0}, Step{step}, std::as_bytes(std::span(a))));
    std::array<float, 2> result{};
    std::memcpy(result.data(), shard->result(SliceId{0}).data(), sizeof result);
    return result;
  };
  EXPECT_EQ(stepWith(0, {1, 2}, {3, 4}), (std::array<float, 2>{9, 18.5}));
  ASSERT_TRUE(
      shard->setHyperparameters(optimizer::parseOptimizerSpec("sgd:lr=1").value().values, Step{1})
          .isOk());
  // Said early, for later: step 1 is not touched by it.
  ASSERT_TRUE(
      shard->setHyperparameters(optimizer::parseOptimizerSpec("sgd:lr=2").value().values, Step{2})
          .isOk());
  EXPECT_EQ(stepWith(1, {1, 1}, {1, 1}), (std::array<float, 2>{8, 17.5}));
  EXPECT_EQ(stepWith(2, {1, 1}, {1, 1}), (std::array<float, 2>{6, 15.5}));
  EXPECT_EQ(stepWith(3, {1, 1}, {1, 1}), (std::array<float, 2>{4, 13.5}));
  EXPECT_FALSE(shard->setHyperparameters({-1}, Step{4}).isOk());
}

TEST(Shard, RefusesWhatDoesNotBelong) {
  const plan::Plan plan = makePlan(3, DType::kF32, 100, 50, "dedicated:1");
  const auto shard = makeShard(plan, Rank{2}, "mean-gradient");
  const auto refusal = [&](uint32_t slice, uint32_t from, uint64_t step, uint64_t bytes) {
    return shard->landing(SliceId{slice}, Rank{from}, Step{step}, bytes).status().message();
  };
  EXPECT_EQ(refusal(9, 0, 0, 200), "slice 9 of step 0 from rank 0 does not fit: not served here");
  EXPECT_EQ(refusal(0, 2, 0, 200),
            "slice 0 of step 0 from rank 2 does not fit: that rank is not a worker");
  EXPECT_EQ(refusal(0, 0, 1, 200),
            "slice 0 of step 1 from rank 0 does not fit: step 0 is being collected");
  EXPECT_EQ(refusal(0, 0, 0, 204),
            "slice 0 of step 0 from rank 0 does not fit: 204 bytes, expected 200");
  const std::vector<std::byte> part(200);
  ASSERT_TRUE(shard->landing(SliceId{1}, Rank{0}, Step{0}, 200).isOk());
  EXPECT_EQ(refusal(1, 0, 0, 200), "slice 1 of step 0 from rank 0 does not fit: it came already");
  EXPECT_FALSE(bring(*shard, Rank{2}, SliceId{0}, Rank{0}, Step{0}, part));
  EXPECT_EQ(refusal(0, 0, 0, 200), "slice 0 of step 0 from rank 0 does not fit: it came already");
  EXPECT_EQ(shard->missing(SliceId{0}), std::vector<Rank>{Rank{1}});
  EXPECT_TRUE(shard->missing(SliceId{1}).empty());
}

TEST(Shard, RefusesATypeThatCannotBeSummed) {
  const plan::Plan plan = makePlan(2, DType::kBytes, 8, 8);
  static const base::ManualClock kClock;
  const auto made =
      Shard::make(plan, Rank{0}, optimizer::parseOptimizerSpec("sgd").value(), kClock, nullptr);
  EXPECT_NE(made.status().message().find("tensor 'w'"), std::string::npos)
      << made.status().message();
}

class Recorder final : public StageObserver {
 public:
  void onStage(const StageEvent& event) override { stages.push_back(event.stage); }
  void onWait(const WaitEvent&) override {}
  std::vector<Stage> stages;
};

TEST(Shard, TellsTheStagesInTheirOrder) {
  const plan::Plan plan = makePlan(2, DType::kF32, 4, 4);
  Recorder recorder;
  const auto shard = makeShard(plan, Rank{0}, "mean-gradient", &recorder);
  const std::vector<std::byte> part(16);
  bring(*shard, Rank{0}, SliceId{0}, Rank{1}, Step{0}, part);
  bring(*shard, Rank{0}, SliceId{0}, Rank{0}, Step{0}, part);
  EXPECT_EQ(recorder.stages,
            (std::vector{Stage::kCollect, Stage::kCollect, Stage::kReduce, Stage::kUpdate}));
}

}  // namespace
}  // namespace sluice::shard
