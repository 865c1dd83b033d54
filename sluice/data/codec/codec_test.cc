// One contract for every codec.
#include <sluice/data/codec/codec.h>

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sluice/data/kernel/level.h>

namespace sluice::codec {
namespace {

using Bytes = std::vector<std::byte>;

Bytes encode(const Codec& codec, const std::vector<float>& values) {
  Bytes encoded(codec.encodedBytes(values.size()));
  codec.encode(std::as_bytes(std::span(values)), encoded);
  return encoded;
}

std::vector<float> decode(const Codec& codec, const Bytes& encoded, size_t elements) {
  std::vector<float> values(elements);
  codec.decode(encoded, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<float> roundTrip(const Codec& codec, const std::vector<float>& values) {
  return decode(codec, encode(codec, values), values.size());
}

// Any length around the block's, numbers of very different size, denormals and zeros among them.
rc::Gen<std::vector<float>> numbers() {
  const auto exponents = rc::gen::inRange(-150, 15);
  return rc::gen::mapcat(exponents, [](int most) {
    const auto one = rc::gen::map(
        rc::gen::pair(rc::gen::inRange(-1'000'000, 1'000'001), rc::gen::inRange(-40, 1)),
        [most](const std::pair<int, int>& both) {
          return std::ldexp(static_cast<float>(both.first) * 1e-6F, most + both.second);
        });
    return rc::gen::mapcat(rc::gen::inRange<size_t>(0, 3 * kBlock), [one](size_t count) {
      return rc::gen::container<std::vector<float>>(count, one);
    });
  });
}

class CodecContract : public testing::TestWithParam<std::string> {
 protected:
  const Codec& codec() const { return **findCodec(GetParam()); }
};

TEST_P(CodecContract, StaysWithinItsLimit) {
  rc::check([&] {
    const auto values = *numbers();
    const auto decoded = roundTrip(codec(), values);
    for (size_t begin = 0; begin < values.size(); begin += kBlock) {
      const size_t end = std::min(values.size(), begin + kBlock);
      float largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
      for (size_t i = begin; i < end; ++i) {
        RC_ASSERT(std::abs(static_cast<double>(values[i]) - decoded[i]) <=
                  codec().errorLimit(largest));
      }
    }
  });
}

TEST_P(CodecContract, IsRepeatable) {
  rc::check([&] {
    const auto values = *numbers();
    const Bytes once = encode(codec(), values);
    RC_ASSERT(encode(codec(), decode(codec(), once, values.size())) == once);
  });
}

TEST_P(CodecContract, PartsThatBeginAtBlocksAreTheWhole) {
  rc::check([&] {
    const auto values = *numbers();
    const size_t cut = std::min(kBlock, values.size());
    auto first = roundTrip(codec(), {values.begin(), values.begin() + static_cast<ptrdiff_t>(cut)});
    const auto second =
        roundTrip(codec(), {values.begin() + static_cast<ptrdiff_t>(cut), values.end()});
    first.insert(first.end(), second.begin(), second.end());
    RC_ASSERT(first == roundTrip(codec(), values));
  });
}

TEST_P(CodecContract, HidesNoInfinityAndNoNan) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(kBlock + 3, 0.5F);
    values[kBlock + 1] = bad;
    const auto decoded = roundTrip(codec(), values);
    EXPECT_FALSE(std::isfinite(decoded[kBlock + 1]));
    EXPECT_EQ(decoded[0], 0.5F) << "another block";
  }
}

TEST_P(CodecContract, KeepsExtremes) {
  const float most = std::numeric_limits<float>::max();
  for (const float value :
       {0.0F, -0.0F, std::numeric_limits<float>::denorm_min(), std::ldexp(1.0F, -127),
        std::numeric_limits<float>::min(), 0.99F * most, most, -most}) {
    const auto decoded = roundTrip(codec(), {value});
    const double limit = codec().errorLimit(std::abs(static_cast<double>(value)));
    if (std::isfinite(limit)) {
      EXPECT_LE(std::abs(static_cast<double>(value) - decoded[0]), limit) << value;
    }
    if (std::isfinite(decoded[0])) {
      EXPECT_EQ(encode(codec(), decoded), encode(codec(), {value})) << value;
    }
  }
}

TEST_P(CodecContract, TakesBytesAtAnyAddress) {
  const std::vector<float> values{1.5F, -2.25F, 3.0F};
  Bytes elements(1 + values.size() * sizeof(float));
  std::memcpy(elements.data() + 1, values.data(), values.size() * sizeof(float));
  Bytes encoded(1 + codec().encodedBytes(values.size()));
  codec().encode(std::span(elements).subspan(1), std::span(encoded).subspan(1));
  Bytes decoded(1 + values.size() * sizeof(float));
  codec().decode(std::span(encoded).subspan(1), std::span(decoded).subspan(1));
  std::vector<float> result(values.size());
  std::memcpy(result.data(), decoded.data() + 1, values.size() * sizeof(float));
  EXPECT_EQ(result, roundTrip(codec(), values));
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecContract, testing::Values("fp16", "bf16", "int8"),
                         [](const auto& codec) { return codec.param; });

TEST(Codecs, AreFoundByName) {
  EXPECT_EQ(*findCodec("none"), nullptr);
  EXPECT_EQ(findCodec("zip").status().message(),
            "there is no codec 'zip'; use one of none, fp16, bf16, int8");
}

}  // namespace
}  // namespace sluice::codec
