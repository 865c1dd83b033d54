#include <sluice/data/codec/error_feedback.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace sluice::codec {
namespace {

std::vector<float> someGradients(size_t elements) {
  return *rc::gen::container<std::vector<float>>(
      elements, rc::gen::map(rc::gen::inRange(-100'000, 100'001),
                             [](int n) { return static_cast<float>(n) * 1e-5F; }));
}

TEST(ErrorFeedback, ConservesTheSum) {
  for (const Codec* codec : {&kFp16, &kBf16, &kInt8}) {
    rc::check([&] {
      const auto elements = *rc::gen::inRange<size_t>(1, 2 * kBlock);
      ErrorFeedback feedback(*codec, elements);
      std::vector<double> given(elements);
      std::vector<double> sent(elements);
      for (int step = 0; step < 10; ++step) {
        auto gradients = someGradients(elements);
        for (size_t i = 0; i < elements; ++i) given[i] += gradients[i];
        feedback.apply(std::as_writable_bytes(std::span(gradients)));
        for (size_t i = 0; i < elements; ++i) sent[i] += gradients[i];
      }
      // Only the sum of gradient and debt rounds, to the last place of an f32 between 1 and 2.
      for (size_t i = 0; i < elements; ++i)
        RC_ASSERT(std::abs(given[i] - sent[i] - feedback.owed()[i]) <= 10 * 0x1p-23);
    });
  }
}

TEST(ErrorFeedback, LeavesWhatTheCodecCarriesWithoutLoss) {
  rc::check([] {
    auto gradients = someGradients(kBlock + 5);
    ErrorFeedback feedback(kInt8, gradients.size());
    feedback.apply(std::as_writable_bytes(std::span(gradients)));
    std::vector<std::byte> encoded(kInt8.encodedBytes(gradients.size()));
    std::vector<float> decoded(gradients.size());
    kInt8.encode(std::as_bytes(std::span(gradients)), encoded);
    kInt8.decode(encoded, std::as_writable_bytes(std::span(decoded)));
    RC_ASSERT(decoded == gradients);
  });
}

TEST(ErrorFeedback, OfALargeBufferIsThatOfItsBlocks) {
  constexpr size_t kElements = 200 * kBlock + 7;
  std::vector<float> gradients(kElements);
  for (size_t i = 0; i < kElements; ++i)
    gradients[i] = static_cast<float>(i * 7919 % 1009) - 504.5F;
  gradients[5 * kBlock] = std::numeric_limits<float>::infinity();
  ErrorFeedback whole(kInt8, kElements);
  auto sent = gradients;
  for (int step = 0; step < 2; ++step) {
    sent = gradients;
    whole.apply(std::as_writable_bytes(std::span(sent)));
  }
  for (size_t first = 0; first < kElements; first += kBlock) {
    const size_t count = std::min(kBlock, kElements - first);
    const auto own = std::span(gradients).subspan(first, count);
    std::vector<float> block;
    ErrorFeedback feedback(kInt8, count);
    for (int step = 0; step < 2; ++step) {
      block.assign(own.begin(), own.end());
      feedback.apply(std::as_writable_bytes(std::span(block)));
    }
    const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    EXPECT_TRUE(std::ranges::equal(block, std::span(sent).subspan(first, count), same)) << first;
    EXPECT_TRUE(std::ranges::equal(feedback.owed(), whole.owed().subspan(first, count))) << first;
  }
}

TEST(ErrorFeedback, GoesOnFromACheckpoint) {
  rc::check([] {
    const auto first = someGradients(40);
    const auto second = someGradients(40);
    ErrorFeedback whole(kInt8, 40);
    auto a = first;
    auto b = second;
    whole.apply(std::as_writable_bytes(std::span(a)));
    ErrorFeedback resumed(kInt8, 40);
    RC_ASSERT(resumed.restore(whole.owed()).isOk());
    whole.apply(std::as_writable_bytes(std::span(b)));
    auto c = second;
    resumed.apply(std::as_writable_bytes(std::span(c)));
    RC_ASSERT(b == c);
  });
  ErrorFeedback feedback(kInt8, 3);
  EXPECT_EQ(feedback.restore(std::vector<float>(4)).message(),
            "the checkpoint holds the codec's rest of 4 elements, but this model has 3; use a "
            "checkpoint of this model");
}

TEST(ErrorFeedback, CarriesNoInfinityOver) {
  ErrorFeedback feedback(kFp16, 1);
  std::vector<float> gradient{1e30F};
  feedback.apply(std::as_writable_bytes(std::span(gradient)));
  EXPECT_FALSE(std::isfinite(gradient[0]));
  EXPECT_EQ(feedback.owed()[0], 0.0F);
}

}  // namespace
}  // namespace sluice::codec
