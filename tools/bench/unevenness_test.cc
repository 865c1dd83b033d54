#include <tools/bench/unevenness.h>

#include <set>

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

TEST(Unevenness, StragglersAreTheLastWorkersAndAlwaysSlow) {
  const auto uneven = parseUnevenness("1:3x", "").value();
  for (uint64_t step = 0; step < 10; ++step) {
    for (const uint32_t worker : {0U, 1U, 2U}) EXPECT_EQ(uneven.factor(worker, 4, step), 1);
    EXPECT_EQ(uneven.factor(3, 4, step), 3);
  }
  EXPECT_TRUE(parseUnevenness("", "").value().isNone());
  EXPECT_FALSE(uneven.isNone());
}

TEST(Unevenness, JitterIsATenthOfEachWorkersStepsAtRandom) {
  const auto uneven = parseUnevenness("", "0.1:3x").value();
  std::set<std::set<uint64_t>> patterns;
  for (uint32_t worker = 0; worker < 4; ++worker) {
    std::set<uint64_t> slow;
    for (uint64_t step = 0; step < 200; ++step) {
      const double factor = uneven.factor(worker, 4, step);
      EXPECT_TRUE(factor == 1 || factor == 3);
      if (factor == 3) slow.insert(step);
    }
    EXPECT_EQ(slow.size(), 20U);
    patterns.insert(slow);
  }
  EXPECT_EQ(patterns.size(), 4U);  // not all at once
}

TEST(Unevenness, NonsenseIsRefused) {
  for (const char* text : {"1", "1:3", ":3x", "x", "-1:3x", "1:0.5x", "1.5:3x", "a:3x", "1:3x:1"}) {
    EXPECT_EQ(parseUnevenness(text, "").status().code(), Code::kInvalidArgument) << text;
  }
  for (const char* text : {"0.1", "2:3x", "0:3x", "0.1:x"}) {
    EXPECT_EQ(parseUnevenness("", text).status().code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace sluice::bench
