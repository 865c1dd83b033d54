#include <sluice/data/codec/dgc.h>

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/base/testing/short_tests.h>
#include <sluice/data/codec/sparse.h>
#include <sluice/data/timing/profile.h>

namespace sluice::codec {
namespace {

std::vector<float> gradientOf(size_t elements, uint32_t seed) {
  uint32_t state = seed * 0x9e3779b9U + 1;
  std::vector<float> gradient(elements);
  for (float& g : gradient) {
    state = state * 1664525U + 1013904223U;
    const float u = static_cast<float>(state >> 8U) / static_cast<float>(1U << 23U) - 1;
    g = u * u * u * u * u;  // few large ones, many small ones, as gradients are
  }
  return gradient;
}

// Decodes a message to a whole vector.
std::vector<float> decoded(const std::vector<std::byte>& message, size_t elements,
                           size_t* sent = nullptr) {
  std::vector<float> values(elements);
  std::vector<uint32_t> places;
  EXPECT_TRUE(addSparse(message, values, places).isOk());
  if (sent != nullptr) *sent = places.size();
  return values;
}

TEST(Dgc, SentAndKeptAreWhatHasAccumulated) {
  for (const bool masks : {false, true}) {
    for (const double sparsity : {0.0, 0.5, 0.75, 0.99, 0.999, 1.0}) {
      for (const size_t elements : {1U, 7U, 1000U, 30'000U}) {
        SCOPED_TRACE(fmt::format("{} of {}, masks {}", sparsity, elements, masks));
        Dgc dgc(elements, {.masksMomentum = masks});
        for (uint32_t step = 0; step < 6; ++step) {
          const auto gradient = gradientOf(elements, step);
          const std::vector<float> kept(dgc.residual().begin(), dgc.residual().end());
          const std::vector<float> velocity(dgc.velocity().begin(), dgc.velocity().end());
          size_t sent = 0;
          const auto message = dgc.compress(gradient, sparsity);
          const auto values = decoded(message, elements, &sent);
          EXPECT_LE(message.size(), 1 + elements * sizeof(float));
          if (sent < elements) {
            EXPECT_LE(sent, std::ceil((1 - sparsity) * static_cast<double>(elements)) + 1);
          }
          EXPECT_GE(sent, 1U);
          for (size_t i = 0; i < elements; ++i) {
            const float moved = 0.9F * velocity[i];
            const float accumulated = kept[i] + (moved + gradient[i]);
            ASSERT_EQ(values[i] + dgc.residual()[i], accumulated) << i;
            ASSERT_TRUE(values[i] == 0 || dgc.residual()[i] == 0) << i;
            ASSERT_TRUE(!masks || values[i] == 0 || dgc.velocity()[i] == 0) << i;
          }
        }
      }
    }
  }
}

TEST(Dgc, SendsNoneThatIsSmallerThanOneItKeeps) {
  constexpr size_t kElements = 50'000;
  for (const double sparsity : {0.75, 0.99, 0.999}) {
    Dgc dgc(kElements, {});
    for (uint32_t step = 0; step < 5; ++step) {
      size_t sent = 0;
      const auto values =
          decoded(dgc.compress(gradientOf(kElements, step), sparsity), kElements, &sent);
      float least = INFINITY;
      for (const float value : values) {
        if (value != 0) least = std::min(least, std::abs(value));
      }
      for (const float kept : dgc.residual()) ASSERT_LE(std::abs(kept), least);
      // A sample is a guess, but not a bad one.
      EXPECT_GE(static_cast<double>(sent), 0.5 * (1 - sparsity) * kElements) << sparsity;
    }
  }
}

TEST(Dgc, WithSparsityZeroItIsPlainSgdWithFactorMasking) {
  constexpr size_t kElements = 1000;
  Dgc dgc(kElements, {});
  for (uint32_t step = 0; step < 5; ++step) {
    const auto gradient = gradientOf(kElements, step);
    EXPECT_EQ(decoded(dgc.compress(gradient, 0), kElements), gradient);
  }
}

TEST(Dgc, AloneWithoutMaskingAndClippingItIsMomentumSgdToTheBit) {
  constexpr size_t kElements = 1000;
  constexpr float kRate = 0.1F;
  Dgc dgc(kElements, {.momentum = 0.9, .masksMomentum = false});
  std::vector<float> ours(kElements, 1);
  std::vector<float> reference(kElements, 1);
  std::vector<float> velocity(kElements);
  for (uint32_t step = 0; step < 20; ++step) {
    const auto gradient = gradientOf(kElements, step);
    const auto sent = decoded(dgc.compress(gradient, 0), kElements);
    for (size_t i = 0; i < kElements; ++i) {
      const float kept = 0.9F * velocity[i];
      velocity[i] = kept + gradient[i];
      const float theirStep = kRate * velocity[i];
      reference[i] -= theirStep;
      const float ourStep = kRate * sent[i];
      ours[i] -= ourStep;
    }
    ASSERT_EQ(ours, reference) << step;
  }
}

TEST(Dgc, ADenseTensorHasPlainMomentumWhateverTheSparsity) {
  constexpr size_t kElements = 100;
  Dgc dgc(kElements, {.momentum = 0.9, .isDense = true});
  std::vector<float> velocity(kElements);
  for (uint32_t step = 0; step < 5; ++step) {
    const auto gradient = gradientOf(kElements, step);
    for (size_t i = 0; i < kElements; ++i) {
      const float kept = 0.9F * velocity[i];
      velocity[i] = kept + gradient[i];
    }
    EXPECT_EQ(decoded(dgc.compress(gradient, 0.999), kElements), velocity) << step;
  }
}

TEST(Dgc, WithoutErrorFeedbackTheRestIsLost) {
  constexpr size_t kElements = 30'000;
  Dgc dgc(kElements, {.momentum = 0, .keepsRest = false});
  for (uint32_t step = 0; step < 5; ++step) {
    const auto gradient = gradientOf(kElements, step);
    const auto sent = decoded(dgc.compress(gradient, 0.99), kElements);
    for (size_t i = 0; i < kElements; ++i) {
      ASSERT_TRUE(sent[i] == 0 || sent[i] == gradient[i]) << i;
      ASSERT_EQ(dgc.residual()[i], 0) << i;
    }
  }
}

// Gradients of workers with the same law: clipping each of them as clipOfEach() says has the same
// effect as clipping their mean.
TEST(Dgc, ClippingEachWorkerIsClippingTheirMean) {
  constexpr size_t kElements = 20'000;
  const auto normOf = [](const std::vector<float>& vector) {
    double squares = 0;
    for (const float each : vector) squares += static_cast<double>(each) * each;
    return std::sqrt(squares);
  };
  for (const size_t workers : {1U, 4U, 16U}) {
    std::vector<float> mean(kElements);
    std::vector<std::vector<float>> gradients;
    for (uint32_t w = 0; w < workers; ++w) {
      gradients.push_back(gradientOf(kElements, 100 + w));
      for (size_t i = 0; i < kElements; ++i)
        mean[i] += gradients.back()[i] / static_cast<float>(workers);
    }
    const double limit = normOf(mean) / 3;
    std::vector<float> ofClipped(kElements);
    for (const auto& gradient : gradients) {
      const float factor = clipFactor(gradient, clipOfEach(limit, workers));
      EXPECT_LT(factor, 1);
      for (size_t i = 0; i < kElements; ++i)
        ofClipped[i] += gradient[i] * factor / static_cast<float>(workers);
    }
    EXPECT_NEAR(normOf(ofClipped) / limit, 1, 0.05) << workers;
  }
}

TEST(Dgc, ClipsByTheNorm) {
  Dgc dgc(4, {.momentum = 0});
  const std::vector<float> within{3, 4, 0, 0};
  const std::vector<float> beyond{6, 8, 0, 0};
  EXPECT_EQ(decoded(dgc.compress(within, 0, clipFactor(within, 5)), 4), within);
  EXPECT_EQ(decoded(dgc.compress(beyond, 0, clipFactor(beyond, 5)), 4), within);
  EXPECT_EQ(clipFactor(beyond, 0), 1);
}

TEST(Dgc, GoesOnFromACheckpoint) {
  constexpr size_t kElements = 5000;
  Dgc first(kElements, {});
  for (uint32_t step = 0; step < 3; ++step) (void)first.compress(gradientOf(kElements, step), 0.99);
  Dgc second(kElements, {});
  ASSERT_TRUE(second.restore(first.residual(), first.velocity()).isOk());
  for (uint32_t step = 3; step < 6; ++step) {
    EXPECT_EQ(first.compress(gradientOf(kElements, step), 0.99),
              second.compress(gradientOf(kElements, step), 0.99));
  }
  EXPECT_EQ(Dgc(7, {}).restore(first.residual(), first.velocity()).code(), Code::kInvalidArgument);
}

TEST(Dgc, TheWarmUpIsThePapers) {
  std::vector<double> stages;
  for (uint64_t step = 0; step < 60; step += 10) stages.push_back(warmUpSparsity(step, 10, 0.999));
  EXPECT_EQ(stages, (std::vector<double>{0.75, 0.9375, 0.984375, 0.996, 0.999, 0.999}));
  EXPECT_EQ(warmUpSparsity(19, 10, 0.999), 0.9375);
  EXPECT_EQ(warmUpSparsity(0, 0, 0.999), 0.999);
  EXPECT_EQ(warmUpSparsity(35, 10, 0.5), 0.5);
}

// Push and return, four workers whose largest elements are not the same, every tensor of ResNet-50.
TEST(Dgc, ResNet50TakesLessThanATwoHundredthOfDense) {
  const auto model = timing::findProfile("resnet50").value().toModel();
  constexpr uint32_t kWorkers = 4;
  double dense = 0;
  double sparse = 0;
  const size_t every = base::testsAreShort() ? 8 : 1;
  for (size_t t = 0; t < model.tensors.size(); t += every) {
    const auto& tensor = model.tensors[t];
    std::vector<float> sum(tensor.elements);
    std::vector<uint32_t> places;
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      Dgc dgc(tensor.elements, {});
      const auto message = dgc.compress(gradientOf(tensor.elements, worker + 1), 0.999);
      sparse += static_cast<double>(message.size());
      ASSERT_TRUE(addSparse(message, sum, places).isOk());
    }
    std::ranges::sort(places);
    places.erase(std::unique(places.begin(), places.end()), places.end());
    sparse += kWorkers * static_cast<double>(encodeSparse(sum, places).size());
    dense += kWorkers * 2.0 * static_cast<double>(tensor.bytes());
  }
  EXPECT_GT(dense / sparse, 200) << dense << " against " << sparse;
  RecordProperty("ratio", fmt::format("{:.0f}", dense / sparse));
}

}  // namespace
}  // namespace sluice::codec
