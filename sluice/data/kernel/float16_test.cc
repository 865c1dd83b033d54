#include <sluice/data/kernel/float16.h>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::kernel {
namespace {

struct Format {
  const char* name;
  int mantissaBits;
  int smallestExponent;  // of a normal number
  int largestExponent;
  float (*toF32)(uint16_t);
  uint16_t (*fromF32)(float);
};

const Format kFormats[] = {
    {"bf16", 7, -126, 127, [](uint16_t h) { return f32FromBf16(h); },
     [](float f) { return bf16FromF32(f); }},
    {"f16", 10, -14, 15, [](uint16_t h) { return f32FromF16(h); },
     [](float f) { return f16FromF32(f); }},
};

// The definition, in arithmetic that is exact in double: nothing in common with the code under
// test.
double valueOf(const Format& format, uint16_t half) {
  const int exponentBits = 15 - format.mantissaBits;
  const int exponent = (half & 0x7fff) >> format.mantissaBits;
  const int mantissa = half & ((1 << format.mantissaBits) - 1);
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponentBits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  const int shift = (exponent == 0 ? format.smallestExponent : exponent - format.largestExponent) -
                    format.mantissaBits;
  return sign * std::ldexp(exponent == 0 ? mantissa : mantissa + (1 << format.mantissaBits), shift);
}

double rounded(const Format& format, float value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), format.smallestExponent);
  const int lastPlace = exponent - format.mantissaBits;
  const double result =
      std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(value), -lastPlace)), lastPlace);
  const double tooLarge = std::ldexp(1.0, format.largestExponent + 1);
  return std::abs(result) >= tooLarge
             ? std::copysign(std::numeric_limits<double>::infinity(), value)
             : result;
}

TEST(Float16, EveryNumberWidensToItsValueAndComesBackUnchanged) {
  for (const Format& format : kFormats) {
    for (uint32_t h = 0; h < 0x10000; ++h) {
      const auto half = static_cast<uint16_t>(h);
      const float wide = format.toF32(half);
      const double expected = valueOf(format, half);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide)) << format.name << ' ' << h;
        const auto quiet =
            static_cast<uint16_t>(half | (1U << static_cast<unsigned>(format.mantissaBits - 1)));
        ASSERT_EQ(format.fromF32(wide), quiet) << format.name << ' ' << h;
        continue;
      }
      ASSERT_EQ(wide, expected) << format.name << ' ' << h;
      ASSERT_EQ(std::signbit(wide), (h & 0x8000) != 0) << format.name << ' ' << h;
      ASSERT_EQ(format.fromF32(wide), half) << format.name << ' ' << h;
    }
  }
}

TEST(Float16, RoundsToNearestAndTiesToEven) {
  for (const Format& format : kFormats) {
    const auto check = [&](float value) {
      const uint16_t half = format.fromF32(value);
      ASSERT_EQ(valueOf(format, half), rounded(format, value))
          << format.name << ' ' << std::hexfloat << value;
      ASSERT_EQ((half & 0x8000) != 0, std::signbit(value))
          << format.name << ' ' << std::hexfloat << value;
    };
    for (uint32_t h = 0; h < 0x7fff; ++h) {  // around every midpoint of two neighbours
      const double low = valueOf(format, static_cast<uint16_t>(h));
      const double high = valueOf(format, static_cast<uint16_t>(h + 1));
      if (!std::isfinite(high)) break;
      const auto middle = static_cast<float>((low + high) / 2);
      for (const float value : {std::nextafterf(middle, 0), middle,
                                std::nextafterf(middle, std::numeric_limits<float>::infinity())}) {
        check(value);
        check(-value);
      }
    }
    TestNumbers numbers(1);
    for (int i = 0; i < 200'000; ++i) {
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(numbers.bits()));
      if (!std::isnan(value)) check(value);
    }
    for (const float value : {65519.996F, 65520.0F, 65535.0F, 3.4e38F, 0x1.ff8p127F, 0x1.fep127F,
                              1e-45F, 0x1p-25F, 0x1.000002p-25F}) {
      check(value);
      check(-value);
    }
  }
}

TEST(Float16, NansKeepSignAndStayNan) {
  for (const uint32_t bits : {0x7f800001U, 0xff800001U, 0x7fc00000U, 0xffffffffU, 0x7fffffffU}) {
    const auto nan = std::bit_cast<float>(bits);
    for (const Format& format : kFormats) {
      const uint16_t half = format.fromF32(nan);
      EXPECT_TRUE(std::isnan(valueOf(format, half))) << format.name << ' ' << bits;
      EXPECT_EQ(half >> 15U, bits >> 31U) << format.name << ' ' << bits;
    }
  }
}

}  // namespace
}  // namespace sluice::kernel
