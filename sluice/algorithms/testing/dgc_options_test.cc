// The options of deep gradient compression in a job: the clip limit, the warm-up, factor masking,
// error feedback and tensors that stay dense.
#include <sluice/algorithms/dgc/dgc_options.h>

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include <sluice/algorithms/testing/stepped_world.h>

namespace sluice::algorithms {
namespace {

constexpr size_t kLong = 20'000;
constexpr size_t kShort = 40;

using Settings = std::vector<std::pair<const base::Option*, const char*>>;

base::Config dgcWith(const Settings& settings) {
  base::Config config;
  SLUICE_CHECK(config.set(option::kDgc, "on").isOk());
  SLUICE_CHECK(config.set(option::kSliceElements, "1000000").isOk());
  for (const auto& [option, value] : settings) SLUICE_CHECK(config.set(*option, value).isOk());
  return config;
}

// Workers whose gradients are noise of one law.
class NoisyJob final {
 public:
  NoisyJob(std::string_view algorithm, uint32_t workers, std::string_view update,
           const Settings& settings)
      : world_(algorithm, "all", workers,
               {{"long", kLong, DType::kF32}, {"short", kShort, DType::kF32}}, update,
               /*updatesWaitForWord=*/false, dgcWith(settings)) {}

  void step(uint32_t worker) {
    std::normal_distribution<float> noise;
    for (const uint32_t t : {1U, 0U}) {
      std::vector<float> gradient(t == 0 ? kLong : kShort);
      for (float& each : gradient) each = noise(random_);
      world_.ranks()[worker]->gradientReady(TensorId{t}, std::as_bytes(std::span(gradient)));
    }
    runShuffled(world_.ranks(), random_);
  }
  // One gradient for every step, with the largest elements last.
  void stepRamp() {
    for (const uint32_t t : {1U, 0U}) {
      std::vector<float> gradient(t == 0 ? kLong : kShort);
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = 1 + static_cast<float>(i);
      for (auto& rank : world_.ranks())
        rank->gradientReady(TensorId{t}, std::as_bytes(std::span(gradient)));
    }
    runShuffled(world_.ranks(), random_);
  }
  void stepAll() {
    for (uint32_t worker = 0; worker < world_.ranks().size(); ++worker) step(worker);
  }
  std::vector<float> parameters(uint32_t tensor) {
    const auto bytes = world_.ranks()[0]->result(TensorId{tensor});
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  double norm(uint32_t tensor) {
    double squares = 0;
    for (const float each : parameters(tensor)) squares += static_cast<double>(each) * each;
    return std::sqrt(squares);
  }
  size_t changed(uint32_t tensor) {
    return static_cast<size_t>(
        std::ranges::count_if(parameters(tensor), [](float each) { return each != 0; }));
  }

 private:
  SteppedWorld world_;
  std::mt19937 random_{7};
};

// Without momentum and with all elements sent, the first step from zero is the clipped mean itself.
TEST(DgcOptions, TheClipLimitIsThatOfTheMean) {
  for (const char* algorithm : {"allreduce", "sluice"}) {
    for (const uint32_t workers : {1U, 4U, 9U}) {
      NoisyJob job(algorithm, workers, "sgd:lr=1",
                   {{&option::kDgcSparsity, "0"}, {&option::kDgcClip, "3"}});
      job.stepAll();
      EXPECT_NEAR(job.norm(0), 3, 0.15) << algorithm << " of " << workers;
    }
  }
}

// A worker's gradient is a step of its own there, so the limit is the worker's.
TEST(DgcOptions, WithAspAndSspTheClipLimitIsThatOfEachWorker) {
  for (const char* algorithm : {"asp", "ssp:0"}) {
    NoisyJob job(algorithm, 4, "sgd:lr=1",
                 {{&option::kDgcSparsity, "0"}, {&option::kDgcClip, "3"}});
    if (std::string_view(algorithm) == "asp") {
      job.step(0);
      EXPECT_NEAR(job.norm(0), 3, 1e-3) << algorithm;
      continue;
    }
    job.stepAll();
    EXPECT_NEAR(job.norm(0), 3 * std::sqrt(4.0), 0.3) << algorithm;  // four steps of noise
  }
}

TEST(DgcOptions, TheWarmUpRaisesTheSparsity) {
  NoisyJob job("sluice", 1, "sgd:lr=1", {{&option::kDgcWarmUp, "1"}});
  job.stepAll();
  EXPECT_EQ(job.changed(0), kLong / 4);  // a quarter of all elements is sent
  NoisyJob without("sluice", 1, "sgd:lr=1", {});
  without.stepAll();
  EXPECT_NEAR(static_cast<double>(without.changed(0)), kLong / 1000.0, 1);
}

TEST(DgcOptions, SmallTensorsStayDense) {
  for (const char* algorithm : {"allreduce", "sluice", "asp"}) {
    NoisyJob sparse(algorithm, 1, "sgd:lr=1", {{&option::kDgcSparsity, "0.9"}});
    sparse.stepAll();
    EXPECT_LT(sparse.changed(1), kShort) << algorithm;
    NoisyJob dense(algorithm, 1, "sgd:lr=1",
                   {{&option::kDgcSparsity, "0.9"}, {&option::kDgcDenseBelow, "41"}});
    dense.stepAll();
    EXPECT_EQ(dense.changed(1), kShort) << algorithm;
    EXPECT_EQ(dense.changed(0), kLong / 10) << algorithm;
  }
}

// The second step of an element that is sent twice has momentum only without masking.
TEST(DgcOptions, MaskingForgetsMomentum) {
  const auto normAfterTwo = [](const char* masking) {
    NoisyJob job("sluice", 1, "sgd:lr=1,momentum=0.9",
                 {{&option::kDgcSparsity, "0"}, {&option::kDgcMasking, masking}});
    job.stepAll();
    job.stepAll();
    return job.norm(0) / std::sqrt(static_cast<double>(kLong));
  };
  EXPECT_NEAR(normAfterTwo("on"), std::sqrt(2.0), 0.05);               // g1 + g2
  EXPECT_NEAR(normAfterTwo("off"), std::sqrt(1.9 * 1.9 + 1.0), 0.05);  // 1.9 g1 + g2
}

// Without feedback only elements that are large in one step are ever sent.
TEST(DgcOptions, ErrorFeedbackSendsSmallElementsSometime) {
  const auto changedAfter = [](const char* feedback) {
    NoisyJob job("allreduce", 2, "sgd:lr=1",
                 {{&option::kDgcSparsity, "0.9"}, {&option::kErrorFeedback, feedback}});
    for (int step = 0; step < 12; ++step) job.stepRamp();
    return job.changed(0);
  };
  EXPECT_NEAR(static_cast<double>(changedAfter("off")), kLong / 10.0, 1);
  EXPECT_GT(changedAfter("on"), kLong / 2);
}

}  // namespace
}  // namespace sluice::algorithms
