// Tests of the algorithms that reduce, besides those of exactness_test.cc: codecs, other methods,
// merging, absent gradients.
#include <sluice/algorithms/reduction/reduction.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include <sluice/algorithms/reduction/layer_times.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/options.h>
#include <sluice/data/codec/codec.h>
#include <sluice/data/kernel/element.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::algorithms {
namespace {

constexpr uint32_t kWorld = 3;
using Bytes = std::vector<std::byte>;

Model smallModel() {
  return {{{"conv", 300, DType::kF32},
           {"bias", 3, DType::kF32},
           {"fc", 900, DType::kF32},
           {"out", 10, DType::kF32}}};
}

base::Config withOptions(const std::vector<std::pair<const base::Option*, std::string>>& options) {
  base::Config config;
  for (const auto& [option, value] : options) EXPECT_TRUE(config.set(*option, value).isOk());
  return config;
}

// A job with mean gradients, in one thread.
class Job final {
 public:
  Job(const std::string& algorithm, const base::Config& config) : hub_(kWorld) {
    plan::PlanSpec spec;
    spec.model = smallModel();
    spec.roles = plan::parseRoles("all", kWorld).value();
    spec.strategy = algorithm;
    const Algorithm& chosen = *findAlgorithm(algorithm).value();
    EXPECT_TRUE(chosen.choose(config, spec).isOk());
    plan_.emplace(plan::Plan::make(std::move(spec)).value());
    const auto update = optimizer::parseOptimizerSpec("mean-gradient").value();
    std::vector<Bytes> parameters;
    for (const auto& tensor : plan_->model().tensors) parameters.emplace_back(tensor.bytes());
    for (uint32_t r = 0; r < kWorld; ++r)
      ranks_.push_back(
          std::make_unique<SteppedRank>(*plan_, Rank{r}, update, parameters, config, hub_, chosen));
  }

  // Every rank's gradients, tensor by tensor; returns when nothing is left to do.
  void step(const std::vector<std::vector<Bytes>>& gradients) {
    for (uint32_t t = static_cast<uint32_t>(plan_->model().tensors.size()); t-- > 0;) {
      for (uint32_t r = 0; r < kWorld; ++r) ranks_[r]->gradientReady(TensorId{t}, gradients[r][t]);
    }
    runShuffled(ranks_, random_);
  }
  SteppedRank& operator[](uint32_t rank) { return *ranks_[rank]; }
  const plan::Plan& plan() const { return *plan_; }
  void run() { runShuffled(ranks_, random_); }
  bool runOne() {  // of each rank
    bool ran = false;
    for (const auto& rank : ranks_) ran = rank->loop().runOne() || ran;
    return ran;
  }

 private:
  std::optional<plan::Plan> plan_;
  fabric::LoopbackHub hub_;
  std::vector<std::unique_ptr<SteppedRank>> ranks_;
  std::mt19937 random_{1};
};

std::vector<std::vector<Bytes>> someGradients(kernel::TestNumbers& numbers) {
  std::vector<std::vector<Bytes>> gradients(kWorld);
  for (auto& of : gradients) {
    for (const auto& tensor : smallModel().tensors)
      of.push_back(numbers.elements(DType::kF32, tensor.elements, true));
  }
  return gradients;
}

float at(std::span<const std::byte> bytes, size_t i) {
  return kernel::loadAt<float>(bytes.data(), i);
}

TEST(Reduction, EveryCodecAndMethodKeepsRanksAlikeAndConservesTheSum) {
  for (const char* codec : {"none", "fp16", "bf16", "int8"}) {
    for (const char* method : {"direct", "ring", "halving-doubling"}) {
      const std::string algorithm = std::string_view(method) == "ring" ? "mgp3" : "wfbp";
      SCOPED_TRACE(fmt::format("{} {} {}", algorithm, codec, method));
      Job job(algorithm, withOptions({{&option::kCodec, codec},
                                      {&option::kCollective, method},
                                      {&option::kReductions, "3"}}));
      kernel::TestNumbers numbers(7);
      constexpr int kSteps = 40;
      std::vector<double> given(900);
      std::vector<double> got(900);
      for (int step = 0; step < kSteps; ++step) {
        const auto gradients = someGradients(numbers);
        job.step(gradients);
        for (uint32_t t = 0; t < 4; ++t) {
          for (uint32_t r = 0; r < kWorld; ++r) {
            ASSERT_TRUE(job[r].gates().isOpen(TensorId{t}))
                << job[r].strategy().describeWait(TensorId{t});
            ASSERT_TRUE(std::ranges::equal(job[r].result(TensorId{t}), job[0].result(TensorId{t})));
          }
        }
        for (size_t i = 0; i < given.size(); ++i) {
          for (uint32_t r = 0; r < kWorld; ++r) given[i] += at(gradients[r][2], i) / kWorld;
          got[i] += at(job[0].result(TensorId{2}), i);
        }
      }
      // The debt at the end is at most one error; sums on the way add theirs, of either sign,
      // in every step.
      const auto* found = codec::findCodec(codec).value();
      const double one = found == nullptr ? 1e-5 : found->errorLimit(2.0);
      for (size_t i = 0; i < given.size(); ++i)
        ASSERT_NEAR(given[i], got[i], 2 * kWorld * one * std::sqrt(kSteps));
    }
  }
}

TEST(Reduction, MergesByTheTimesOfLayers) {
  // A start that costs more than everything else: one message. None: one for each tensor.
  Job all("mgwfbp", withOptions({{&option::kReductionStart, "1s"}}));
  EXPECT_EQ(all.plan().spec().settings.at("groups"), "0-3");
  Job each("mgwfbp",
           withOptions({{&option::kReductionStart, "0"}, {&option::kComputeTime, "10s"}}));
  EXPECT_EQ(each.plan().spec().settings.at("groups"), "0-0,1-1,2-2,3-3");
}

TEST(Reduction, SaysHowLongAnIterationShouldTake) {
  const auto planned = [](const char* algorithm, const base::Config& config) {
    return plannedSeconds(config, Job(algorithm, config).plan().spec()).value();
  };
  // Starts that cost far more than bytes and computing: one for all, or one for each of four
  // tensors.
  const base::Config slow =
      withOptions({{&option::kReductionStart, "10s"}, {&option::kComputeTime, "1ms"}});
  EXPECT_NEAR(planned("allreduce", slow).value(), 10, 0.01);
  EXPECT_NEAR(planned("mgwfbp", slow).value(), 10, 0.01);
  EXPECT_NEAR(planned("wfbp", slow).value(), 40, 0.01);
  EXPECT_NEAR(planned("mgp3", slow).value(), 10, 0.01);
  // Computing that costs far more: a reduction adds to it, or is hidden behind it.
  const base::Config busy =
      withOptions({{&option::kReductionStart, "1s"}, {&option::kComputeTime, "10s"}});
  EXPECT_NEAR(planned("allreduce", busy).value(), 11, 0.01);
  EXPECT_NEAR(planned("pipe", busy).value(), 10, 0.01);
  EXPECT_FALSE(planned("p3", busy).has_value());
}

TEST(Reduction, EachGroupGoesAsItsSizeSuits) {
  const std::pair<const base::Option*, std::string> isAuto{&option::kCollective, "auto"};
  Job job("wfbp",
          withOptions({isAuto, {&option::kCollectiveCosts, "direct=1us+2ns,ring=2us+1ns"}}));
  EXPECT_EQ(job.plan().spec().settings.at("collective"),
            "ring,direct,ring,direct");  // from 1000 bytes on
  kernel::TestNumbers numbers(3);
  job.step(someGradients(numbers));
  for (uint32_t r = 1; r < kWorld; ++r) {
    for (uint32_t t = 0; t < 4; ++t)
      EXPECT_TRUE(std::ranges::equal(job[r].result(TensorId{t}), job[0].result(TensorId{t})));
  }
  plan::PlanSpec spec;
  spec.model = smallModel();
  spec.roles = plan::parseRoles("all", kWorld).value();
  EXPECT_NE(algorithmNamed("wfbp")
                .choose(withOptions({isAuto}), spec)
                .message()
                .find("sluice bench collective"),
            std::string::npos);
}

TEST(Reduction, RefusesAProfileOfAnotherModel) {
  plan::PlanSpec spec;
  spec.model = smallModel();
  spec.roles = plan::parseRoles("all", kWorld).value();
  const Status chosen =
      algorithmNamed("mgwfbp").choose(withOptions({{&option::kLayerTimes, "vgg19"}}), spec);
  EXPECT_EQ(chosen.message(),
            "the profile 'vgg19' has 38 tensors, but the model has 4; measure this model with "
            "'sluice profile'");
}

TEST(Reduction, AGradientThatNobodyHasOpensItsGateEmpty) {
  for (const char* codec : {"none", "int8"}) {
    Job job("allreduce", withOptions({{&option::kCodec, codec}}));
    kernel::TestNumbers numbers(3);
    const auto gradients = someGradients(numbers);
    for (uint32_t t = 0; t < 4; ++t) {
      for (uint32_t r = 0; r < kWorld; ++r) {
        const bool isAbsent = t == 1 || (t == 2 && r == 1);  // nobody has bias, one lacks fc
        if (!isAbsent) {
          job[r].gradientReady(TensorId{t}, gradients[r][t]);
          continue;
        }
        const Step step = job[r].gates().close(TensorId{t}).value();
        job[r].loop().post([&job, r, t, step] {
          job[r].strategy().contribute({TensorId{t}, step, /*hasGradient=*/false});
        });
      }
    }
    job.run();
    for (uint32_t r = 0; r < kWorld; ++r) {
      for (uint32_t t = 0; t < 4; ++t) {
        ASSERT_TRUE(job[r].gates().isOpen(TensorId{t}));
        EXPECT_EQ(job[r].gates().isEmpty(TensorId{t}), t == 1) << codec;
      }
      EXPECT_NEAR(at(job[r].result(TensorId{2}), 5),
                  (at(gradients[0][2], 5) + at(gradients[2][2], 5)) / 3, 0.02);
    }
  }
}

// fc is large and comes first out of backward; what forward needs first does not wait behind it.
TEST(Reduction, WithPrioritiesASmallGroupThatIsUrgentOvertakes) {
  for (const bool overtakes : {false, true}) {
    Job job(overtakes ? "mgp3" : "wfbp", withOptions({{&option::kReductionStart, "0"},
                                                      {&option::kComputeTime, "1us"},
                                                      {&option::kReductions, "4"},
                                                      {&option::kCredit, "100"}}));
    EXPECT_EQ(job.plan().spec().settings.at("groups"), "0-0,1-1,2-2,3-3");
    kernel::TestNumbers numbers(3);
    const auto gradients = someGradients(numbers);
    for (uint32_t t = 4; t-- > 0;) {
      for (uint32_t r = 0; r < kWorld; ++r) job[r].gradientReady(TensorId{t}, gradients[r][t]);
    }
    std::optional<bool> wasFirst;
    while (!wasFirst && job.runOne()) {
      const bool isUrgentHere = job[0].gates().isOpen(TensorId{0});
      if (isUrgentHere || job[0].gates().isOpen(TensorId{2})) wasFirst = isUrgentHere;
    }
    EXPECT_EQ(wasFirst, overtakes);
    job.run();
  }
}

// Beside a large element int8 rounds a small one to zero. With feedback it comes later.
TEST(Reduction, ErrorFeedbackCanBeSwitchedOff) {
  for (const bool keepsRest : {true, false}) {
    base::Config config;
    ASSERT_TRUE(config.set(option::kCodec, "int8").isOk());
    ASSERT_TRUE(config.set(option::kErrorFeedback, keepsRest ? "on" : "off").isOk());
    SteppedWorld world("allreduce", "all", 2, {{"a", 100, DType::kF32}}, "mean-gradient",
                       /*updatesWaitForWord=*/false, config);
    std::mt19937 random(1);
    float total = 0;
    for (int step = 0; step < 20; ++step) {
      std::vector<float> gradient(100, 0.25F);
      gradient[0] = 127;
      for (auto& rank : world.ranks())
        rank->gradientReady(TensorId{0}, std::as_bytes(std::span(gradient)));
      runShuffled(world.ranks(), random);
      total += kernel::loadAt<float>(world.ranks()[0]->result(TensorId{0}).data(), 7);
    }
    EXPECT_NEAR(total, keepsRest ? 20 * 0.25F : 0, 0.8F) << keepsRest;
  }
}

TEST(Reduction, AWaitSaysWhatItWaitsFor) {
  Job job("wfbp", base::Config{});
  const Bytes gradient(4 * 300);
  job[0].gradientReady(TensorId{0}, gradient);
  job.run();
  EXPECT_EQ(job[0].strategy().describeWait(TensorId{0}),
            "group 3 goes first, and lacks 1 gradients of this rank");
  EXPECT_EQ(job[1].strategy().describeWait(TensorId{0}),
            "1 gradients of its group are not here yet");
  job[0].gradientReady(TensorId{3}, Bytes(4 * 10));
  job.run();
  EXPECT_EQ(job[0].strategy().describeWait(TensorId{3}),
            "1 of 1 strips are not done; waits for what rank 2 sends");
}

TEST(Reduction, GroupsAreReadAsTheyAreWritten) {
  const std::vector<timing::Group> groups{{0, 2}, {3, 3}, {4, 9}};
  EXPECT_EQ(groupsText(groups), "0-2,3-3,4-9");
  EXPECT_EQ(parseGroups("0-2,3-3,4-9", 10).value(), groups);
  for (const char* bad : {"", "0-2", "0-2,4-9", "1-9", "0-x", "2-0,0-9", "0-10"}) {
    EXPECT_FALSE(parseGroups(bad, 10).isOk()) << bad;
  }
}

}  // namespace
}  // namespace sluice::algorithms
