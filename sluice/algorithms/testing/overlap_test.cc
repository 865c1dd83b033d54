// --no-overlap: nothing travels during backward, and forward begins when all is back.
#include <gtest/gtest.h>

#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/testing/stepped_world.h>

namespace sluice::algorithms {
namespace {

base::Config withoutOverlap() {
  base::Config config;
  EXPECT_TRUE(config.set(option::kNoOverlap, "on").isOk());
  return config;
}

class WithoutOverlap : public testing::TestWithParam<const char*> {};

TEST_P(WithoutOverlap, NothingIsSentBeforeBackwardEndsAndAllGatesOpenTogether) {
  SteppedWorld world(GetParam(), "dedicated:1", 3,
                     {{"a", 50, DType::kF32}, {"b", 1, DType::kF32}, {"c", 4, DType::kF32}},
                     "sgd:lr=1",
                     /*updatesWaitForWord=*/false, withoutOverlap());
  std::mt19937 random(1);
  const auto handOver = [&](uint32_t t) {
    for (const uint32_t r : {0U, 1U}) {
      const std::vector<float> ones(world.plan().model().tensors[t].elements, 1);
      world.ranks()[r]->gradientReady(TensorId{t}, std::as_bytes(std::span(ones)));
    }
    runShuffled(world.ranks(), random);
  };
  for (const uint32_t t : {2U, 1U}) handOver(t);
  for (const auto& rank : world.ranks()) EXPECT_EQ(rank->fabric().counters().messagesSent, 0);

  for (const uint32_t r : {0U, 1U}) {
    const std::vector<float> ones(50, 1);
    world.ranks()[r]->gradientReady(TensorId{0}, std::as_bytes(std::span(ones)));
  }
  bool ran = true;
  while (ran) {
    ran = false;
    for (const auto& rank : world.ranks()) ran = rank->loop().runOne() || ran;
    for (const uint32_t r : {0U, 1U}) {
      const auto& gates = world.ranks()[r]->gates();
      EXPECT_EQ(gates.isOpen(TensorId{0}), gates.isOpen(TensorId{1}));
      EXPECT_EQ(gates.isOpen(TensorId{0}), gates.isOpen(TensorId{2}));
    }
  }
  for (const uint32_t r : {0U, 1U}) EXPECT_TRUE(world.ranks()[r]->gates().isOpen(TensorId{0}));
}

INSTANTIATE_TEST_SUITE_P(Algorithms, WithoutOverlap,
                         testing::Values("kvstore", "slicing", "p3", "sluice", "asp", "ssp:0",
                                         "ssp:2", "easgd:1"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice::algorithms
