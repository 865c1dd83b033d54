#include <sluice/algorithms/reduction/packing.h>

#include <cstring>

#include <gtest/gtest.h>

namespace sluice::algorithms {
namespace {

std::span<const std::byte> bytesOf(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> valuesOf(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Packing, PutsTensorsOneAfterTheOtherAndKnowsWhichHaveGradients) {
  const std::vector<Tensor> tensors{{"a", 2, DType::kF32}, {"b", 3, DType::kF32}};
  Packing packing(tensors, /*isMean=*/true, nullptr);
  packing.put(0, bytesOf({1, 2}));
  packing.putNothing(1);
  packing.finish(nullptr);
  EXPECT_EQ(valuesOf(packing.data()), (std::vector<float>{1, 2, 0, 0, 0, 1, 0}));
  EXPECT_FALSE(packing.isEmpty(0));
  EXPECT_TRUE(packing.isEmpty(1));
  packing.put(1, bytesOf({3, 4, 5}));
  EXPECT_EQ(valuesOf(packing.get(1)), (std::vector<float>{3, 4, 5}));
  EXPECT_FALSE(packing.isEmpty(1));
}

TEST(Packing, Gives16BitGradientsUnroundedToAnOptimizer) {
  const std::vector<Tensor> tensors{{"a", 2, DType::kBF16}};
  EXPECT_EQ(Packing(tensors, /*isMean=*/true, nullptr).dtype(), DType::kBF16);
  Packing packing(tensors, /*isMean=*/false, nullptr);
  EXPECT_EQ(packing.dtype(), DType::kF32);
  const std::vector<uint16_t> halves{0x3f80, 0xc000};  // 1 and -2
  packing.put(0, std::as_bytes(std::span(halves)));
  EXPECT_EQ(valuesOf(packing.get(0)), (std::vector<float>{1, -2}));
}

TEST(Packing, OwesToTheNextStepWhatACodecTakes) {
  const std::vector<Tensor> tensors{{"a", 2, DType::kF32}};
  Packing packing(tensors, /*isMean=*/true, &codec::kInt8);
  codec::ErrorFeedback feedback(codec::kInt8, packing.owedElements());
  packing.put(0, bytesOf({1000, 1}));  // a step is 8 here
  packing.finish(&feedback);
  EXPECT_EQ(valuesOf(packing.get(0)), (std::vector<float>{1000, 0}));
  EXPECT_FALSE(packing.isEmpty(0));
  for (int step = 0; step < 3; ++step) {
    packing.put(0, bytesOf({1000, 1}));
    packing.finish(&feedback);
  }
  packing.put(0, bytesOf({1000, 1}));
  packing.finish(&feedback);
  EXPECT_EQ(valuesOf(packing.get(0))[1], 8) << "five times 1 is more than half a step";
}

TEST(Packing, GroupsAreCutWhereTheTypeChanges) {
  const Model model{
      {{"a", 1, DType::kF32}, {"b", 1, DType::kF32}, {"c", 1, DType::kF16}, {"d", 1, DType::kF32}}};
  const std::vector<timing::Group> groups{{0, 0}, {1, 3}};
  EXPECT_EQ(splitByType(model, groups),
            (std::vector<timing::Group>{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
}

}  // namespace
}  // namespace sluice::algorithms
