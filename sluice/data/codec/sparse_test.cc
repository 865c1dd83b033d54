#include <sluice/data/codec/sparse.h>

#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace sluice::codec {
namespace {

std::vector<uint32_t> all(size_t elements) {
  std::vector<uint32_t> places(elements);
  std::iota(places.begin(), places.end(), 0U);
  return places;
}

RC_GTEST_PROP(Sparse, IsReadAsItWasWritten, ()) {
  const auto elements = *rc::gen::inRange<size_t>(0, 5000);
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  std::set<uint32_t> chosen;
  const auto count = elements == 0 ? 0 : *rc::gen::inRange<size_t>(0, 300);
  for (size_t i = 0; i < count; ++i) chosen.insert(static_cast<uint32_t>(random() % elements));
  std::vector<float> values(elements);
  for (float& value : values) value = static_cast<float>(random() % 1000) - 500;
  const std::vector<uint32_t> places(chosen.begin(), chosen.end());
  const auto bytes = encodeSparse(values, places);
  RC_ASSERT(bytes.size() <= 1 + elements * sizeof(float));
  std::vector<float> sum(elements, 1);
  std::vector<uint32_t> read;
  RC_ASSERT(addSparse(bytes, sum, read).isOk());
  const bool isDense = isSentDense(elements, places);
  RC_ASSERT(read == (isDense ? all(elements) : places));
  const auto decoded = decodeSparse(bytes, elements).value();
  RC_ASSERT(decoded.places == read);
  for (size_t i = 0; i < read.size(); ++i) RC_ASSERT(decoded.values[i] == values[read[i]]);
  for (uint32_t i = 0; i < elements; ++i)
    RC_ASSERT(sum[i] == (isDense || chosen.contains(i) ? 1 + values[i] : 1));
}

// Damaged bytes take no more memory than they are worth and name no place beyond the end. No vector
// is half added.
RC_GTEST_PROP(Sparse, DamagedBytesAreRefusedOrHarmless, ()) {
  const auto elements = *rc::gen::inRange<size_t>(1, 300);
  std::vector<float> values(elements, 2);
  std::vector<uint32_t> places;
  for (uint32_t p = 0; p < elements; p += 7) places.push_back(p);
  auto bytes = encodeSparse(values, places);
  for (int damage = *rc::gen::inRange(1, 4); damage > 0; --damage) {
    if (!bytes.empty() && *rc::gen::arbitrary<bool>()) bytes.pop_back();
    if (!bytes.empty())
      bytes[*rc::gen::inRange<size_t>(0, bytes.size())] =
          static_cast<std::byte>(*rc::gen::inRange(0, 256));
  }
  std::vector<float> sum(elements, 1);
  std::vector<uint32_t> read;
  if (!addSparse(bytes, sum, read).isOk()) {
    RC_ASSERT(read.empty());
    RC_ASSERT(sum == std::vector<float>(elements, 1));
  }
  for (const uint32_t place : read) RC_ASSERT(place < elements);
}

TEST(Sparse, IsAddedAndSetWhereItIs) {
  std::vector<float> floats{1, 2, 3, 4};
  const auto bytes = std::as_writable_bytes(std::span(floats));
  addScaledSparse({.places = {0, 3}, .values = {2, 8}}, -0.5F, bytes);
  EXPECT_EQ(floats, (std::vector<float>{0, 2, 3, 0}));
  setSparse({.places = {1, 3}, .values = {7, 9}}, bytes);
  EXPECT_EQ(floats, (std::vector<float>{0, 7, 3, 9}));
}

TEST(Sparse, ATenthOfAPercentTakesSixBytesEach) {
  constexpr size_t kElements = 1'000'000;
  const std::vector<float> values(kElements, 1);
  std::vector<uint32_t> places;
  for (uint32_t p = 500; p < kElements; p += 1000) places.push_back(p);
  EXPECT_LE(encodeSparse(values, places).size(), 6 * places.size() + 4);
}

TEST(Sparse, IsNeverLongerThanDense) {
  const std::vector<float> values(1000, 1);
  EXPECT_TRUE(isSentDense(1000, all(1000)));
  EXPECT_EQ(encodeSparse(values, all(1000)).size(), 4001U);
  EXPECT_FALSE(isSentDense(1000, all(250)));  // the first sparsity of the warm-up
}

}  // namespace
}  // namespace sluice::codec
