// 8 bits an element, with one scale for each block: the largest element takes nearly all of the
// range, as in Pipe-SGD's scalar quantisation. The scale is a power of two 2^k, the least with
// largest <= 127 * 2^k. That costs at most one bit against the exact quotient and makes the codec
// repeatable: the largest decoded element is between 64 and 127 steps, which asks for the same k
// again; and no multiplication by a scale rounds.
//
// A block on the wire: k in one byte, then one byte for each element.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <sluice/data/codec/codec.h>
#include <sluice/data/kernel/element.h>
#include <sluice/data/kernel/level.h>

namespace sluice::codec {
namespace {

// The range of k, and two values that are not scales. From kLeast on, 2^k and its inverse are
// normal numbers.
constexpr int kLeast = -126;
constexpr int kMost = 121;          // up to here all decoded numbers are finite
constexpr int8_t kZeros = -128;     // all elements are 0
constexpr int8_t kNotFinite = 127;  // some element is not finite or too large: all decode to NaN
constexpr uint32_t kInfinity = 0x7f800000U;
constexpr int kSteps = 127;

SLUICE_KERNEL float powerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23U);
}

struct Largest final {
  SLUICE_KERNEL static void run(const std::byte* in, size_t count, uint32_t* result) {
    uint32_t largest = 0;  // magnitudes compare as integers
    for (size_t i = 0; i < count; ++i)
      largest = std::max(largest, kernel::loadAt<uint32_t>(in, i) & 0x7fffffffU);
    *result = largest;
  }
};

struct Quantise final {
  SLUICE_KERNEL static void run(const std::byte* __restrict in, std::byte* __restrict out,
                                size_t count, float inverse) {
    // Adding this makes the last place of the sum 1, so that the addition rounds to nearest, ties
    // to even.
    constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23
    for (size_t i = 0; i < count; ++i) {
      const float steps = kernel::loadAt<float>(in, i) * inverse + kRounder;
      out[i] = static_cast<std::byte>(std::bit_cast<uint32_t>(steps) & 0xffU);
    }
  }
};

struct Restore final {
  SLUICE_KERNEL static void run(const std::byte* __restrict in, std::byte* __restrict out,
                                size_t count, float scale) {
    for (size_t i = 0; i < count; ++i) {
      kernel::storeAt(out, i, static_cast<float>(static_cast<int8_t>(in[i])) * scale);
    }
  }
};

int8_t scaleFor(uint32_t largestBits) {
  // Compared as integers NaNs are above infinity, so this covers them too.
  if (largestBits >= kInfinity) return kNotFinite;
  const float largest = std::bit_cast<float>(largestBits);
  if (largest <= std::ldexp(0.5F, kLeast))
    return kZeros;  // half a step at the least scale rounds to zero
  int exponent = 0;
  const float fraction = std::frexp(largest, &exponent);  // in [1/2, 1)
  // 127/128 * 2^exponent is 127 steps of 2^(exponent - 7). A larger fraction would need 128, so
  // the steps are doubled.
  const int fits = fraction <= 127.0F / 128.0F ? exponent - 7 : exponent - 6;
  return fits > kMost ? kNotFinite : static_cast<int8_t>(std::max(fits, kLeast));
}

class Int8Codec final : public Codec {
 public:
  std::string_view name() const override { return "int8"; }
  size_t encodedBytes(size_t elements) const override {
    return elements + (elements + kBlock - 1) / kBlock;
  }

  void encode(std::span<const std::byte> elements, std::span<std::byte> encoded) const override {
    const auto level = kernel::bestLevel();
    forEachBlock(elements.size() / sizeof(float), [&](size_t begin, size_t count, size_t place) {
      const std::byte* in = elements.data() + begin * sizeof(float);
      uint32_t largest = 0;
      kernel::run<Largest>(level, in, count, &largest);
      const int8_t k = scaleFor(largest);
      encoded[place] = static_cast<std::byte>(k);
      std::byte* out = encoded.data() + place + 1;
      if (k == kZeros || k == kNotFinite) {
        std::fill_n(out, count, std::byte{0});
      } else {
        kernel::run<Quantise>(level, in, out, count, powerOfTwo(-k));
      }
    });
  }

  void decode(std::span<const std::byte> encoded, std::span<std::byte> elements) const override {
    const auto level = kernel::bestLevel();
    forEachBlock(elements.size() / sizeof(float), [&](size_t begin, size_t count, size_t place) {
      const auto k = static_cast<int8_t>(encoded[place]);
      // The byte may come from a stranger: clamp k, so that no k outside the range makes a scale.
      float scale = powerOfTwo(std::clamp<int>(k, kLeast, kMost));
      if (k == kZeros) scale = 0;
      if (k == kNotFinite) scale = std::numeric_limits<float>::quiet_NaN();
      kernel::run<Restore>(level, encoded.data() + place + 1,
                           elements.data() + begin * sizeof(float), count, scale);
    });
  }

  double errorLimit(double largest) const override {
    if (largest > std::ldexp(kSteps, kMost)) return std::numeric_limits<double>::infinity();
    return std::max(largest / kSteps, std::ldexp(0.5, kLeast));
  }

 private:
  template <typename F>
  static void forEachBlock(size_t elements, F&& f) {
    for (size_t begin = 0, place = 0; begin < elements; begin += kBlock) {
      const size_t count = std::min(kBlock, elements - begin);
      f(begin, count, place);
      place += count + 1;
    }
  }
};

const Int8Codec kInt8Codec;

}  // namespace

const Codec& kInt8 = kInt8Codec;

}  // namespace sluice::codec
