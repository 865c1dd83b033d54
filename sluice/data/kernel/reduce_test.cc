#include <sluice/data/kernel/reduce.h>

#include <algorithm>
#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::kernel {
namespace {

using Bytes = std::vector<std::byte>;
constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
constexpr size_t kSizes[] = {0, 1, 7, 8, 9, 31, 1000, 5000};

// The sum as its definition reads: for each element, rank after rank.
Bytes naiveSum(DType dtype, const std::vector<Bytes>& ranks, double scale) {
  return withElement(dtype, [&]<typename Element>(Element) {
    using Compute = typename Element::Compute;
    const size_t count = ranks[0].size() / sizeOf(dtype);
    Bytes out(count * sizeof(Compute));
    for (size_t i = 0; i < count; ++i) {
      Compute sum = Element::load(ranks[0].data(), i) * static_cast<Compute>(scale);
      for (size_t r = 1; r < ranks.size(); ++r) {
        const Compute part = Element::load(ranks[r].data(), i) * static_cast<Compute>(scale);
        sum = sum + part;
      }
      storeAt<Compute>(out.data(), i, sum);
    }
    return out;
  });
}

std::vector<Bytes> contributions(DType dtype, size_t ranks, size_t count) {
  TestNumbers numbers(ranks * 1'000'003 + count);
  std::vector<Bytes> parts;
  for (size_t r = 0; r < ranks; ++r) parts.push_back(numbers.elements(dtype, count));
  return parts;
}

// A copy of `bytes` that starts `offset` bytes after an aligned address.
class Misaligned final {
 public:
  Misaligned(const Bytes& bytes, size_t offset) : storage_(bytes.size() + offset), offset_(offset) {
    std::ranges::copy(bytes, span().begin());
  }
  std::span<std::byte> span() { return std::span(storage_).subspan(offset_); }

 private:
  Bytes storage_;
  size_t offset_;
};

TEST(Reduce, SumsInRankOrderAtEveryLevelSizeAndAlignment) {
  for (const Level level : levels()) {
    for (const DType dtype : kDTypes) {
      for (const size_t count : kSizes) {
        for (const size_t ranks : {1U, 2U, 3U, 8U}) {
          const std::string at = fmt::format("{} {} {} elements {} ranks", name(level),
                                             sluice::name(dtype), count, ranks);
          const auto parts = contributions(dtype, ranks, count);
          const Bytes expected = naiveSum(dtype, parts, meanScale(ranks));
          for (const size_t offset : {0U, 1U, 3U, 4U}) {
            std::vector<Misaligned> shifted;
            for (const auto& part : parts) shifted.emplace_back(part, offset);
            std::vector<std::span<const std::byte>> spans;
            for (auto& part : shifted) spans.push_back(part.span());
            Misaligned atOnce(Bytes(expected.size()), offset);
            sumInRankOrder(dtype, atOnce.span(), spans, meanScale(ranks), level);
            ASSERT_TRUE(std::ranges::equal(atOnce.span(), expected)) << at;
            Misaligned oneByOne(Bytes(expected.size()), offset);
            setScaled(dtype, oneByOne.span(), spans[0], meanScale(ranks), level);
            for (size_t r = 1; r < ranks; ++r)
              addScaled(dtype, oneByOne.span(), spans[r], meanScale(ranks), level);
            ASSERT_TRUE(std::ranges::equal(oneByOne.span(), expected)) << at;
          }
        }
      }
    }
  }
}

// Every CPU, compiler, build type and level must give these bits. A change here breaks the promise
// that a job gives the same parameters on other machines, so it needs a better reason than a
// failing test.
TEST(Reduce, GivesTheBitsOfEveryOtherMachine) {
  const std::map<DType, std::pair<uint64_t, uint64_t>> expected = {
      {DType::kF32, {0xdd20e9592458d7bbU, 0xdd20e9592458d7bbU}},
      {DType::kF64, {0xb920f2b71efba06cU, 0xb920f2b71efba06cU}},
      {DType::kBF16, {0x62f42a33feb72d1eU, 0x1f0664651e5db83dU}},
      {DType::kF16, {0xe22cedaab70e6592U, 0xf4b502575a47fb19U}},
  };
  for (const Level level : levels()) {
    for (const DType dtype : kDTypes) {
      constexpr size_t kCount = 10'007;
      constexpr size_t kRanks = 3;
      const auto parts = contributions(dtype, kRanks, kCount);
      const std::vector<std::span<const std::byte>> spans(parts.begin(), parts.end());
      Bytes sum(kCount * sizeOf(accumulatorOf(dtype)));
      sumInRankOrder(dtype, sum, spans, meanScale(kRanks), level);
      Bytes mean(kCount * sizeOf(dtype));
      narrow(dtype, mean, sum, level);
      EXPECT_EQ(fnv1a(sum), expected.at(dtype).first) << name(level) << ' ' << sluice::name(dtype);
      EXPECT_EQ(fnv1a(mean), expected.at(dtype).second)
          << name(level) << ' ' << sluice::name(dtype);
    }
  }
}

TEST(Reduce, WidenAndNarrowAreTheScalarConversionsAtEveryLevel) {
  for (const Level level : levels()) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      Bytes all(2 * 0x10000);  // every 16-bit number, NaNs and infinities too
      for (size_t h = 0; h < 0x10000; ++h) storeAt(all.data(), h, static_cast<uint16_t>(h));
      Bytes wide(2 * all.size());
      widen(dtype, wide, all, level);
      withElement(dtype, [&]<typename Element>(Element) {
        for (size_t h = 0; h < 0x10000; ++h) {
          const auto scalar = static_cast<float>(Element::load(all.data(), h));
          ASSERT_EQ(loadAt<uint32_t>(wide.data(), h), std::bit_cast<uint32_t>(scalar))
              << name(level) << ' ' << h;
        }
      });
      TestNumbers numbers(2);
      Bytes any(4 * 100'000);
      for (size_t i = 0; i < 100'000; ++i)
        storeAt(any.data(), i, static_cast<uint32_t>(numbers.bits()));
      Bytes half(2 * 100'000);
      narrow(dtype, half, any, level);
      withElement(dtype, [&]<typename Element>(Element) {
        for (size_t i = 0; i < 100'000; ++i) {
          Bytes one(sizeOf(dtype));
          Element::store(one.data(), 0,
                         static_cast<typename Element::Compute>(loadAt<float>(any.data(), i)));
          ASSERT_EQ(loadAt<uint16_t>(half.data(), i), loadAt<uint16_t>(one.data(), 0))
              << name(level) << ' ' << i;
        }
      });
    }
  }
}

TEST(Reduce, SixteenBitSumsAreRoundedOnce) {
  // In bf16 256 + 1 is 256 again: rounding after each rank would lose every 1.
  Bytes large(2);
  Bytes small(2);
  storeAt(large.data(), 0, bf16FromF32(256));
  storeAt(small.data(), 0, bf16FromF32(1));
  std::vector<std::span<const std::byte>> ranks(9, small);
  ranks[0] = large;
  Bytes sum(4);
  sumInRankOrder(DType::kBF16, sum, ranks, 1.0);
  Bytes rounded(2);
  narrow(DType::kBF16, rounded, sum);
  EXPECT_EQ(f32FromBf16(loadAt<uint16_t>(rounded.data(), 0)), 264);
}

TEST(Reduce, TheMeanScalesBeforeItAddsSoThatItCannotOverflow) {
  Bytes largest(4);
  storeAt(largest.data(), 0, std::numeric_limits<float>::max());
  const std::vector<std::span<const std::byte>> ranks(2, largest);
  Bytes mean(4);
  sumInRankOrder(DType::kF32, mean, ranks, meanScale(2));
  EXPECT_EQ(mean, largest);
}

TEST(Reduce, AMinusZeroFromOneRankStaysOne) {
  Bytes zero(4);
  storeAt(zero.data(), 0, -0.0F);
  Bytes mean(4);
  const std::vector<std::span<const std::byte>> ranks(1, zero);
  sumInRankOrder(DType::kF32, mean, ranks, meanScale(1));
  EXPECT_EQ(mean, zero);
}

TEST(Reduce, OpaqueBytesAreRefusedInOneLine) {
  EXPECT_THAT(checkArithmetic(DType::kBytes).message(),
              testing::HasSubstr("use f32, f64, bf16 or f16"));
  for (const DType dtype : kDTypes) EXPECT_TRUE(checkArithmetic(dtype).isOk());
  EXPECT_FALSE(checkArithmetic(static_cast<DType>(200)).isOk());
}

TEST(ReduceDeathTest, SizesThatDoNotFitAreABug) {
  Bytes sum(8);
  const Bytes part(12);
  EXPECT_DEATH(setScaled(DType::kF32, sum, part, 1.0), "accumulator.size");
}

}  // namespace
}  // namespace sluice::kernel
