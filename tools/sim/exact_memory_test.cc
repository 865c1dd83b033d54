#include <tools/sim/exact_memory.h>

#include <gtest/gtest.h>

namespace sluice::sim {
namespace {

TEST(ExactMemory, AJobThatNeedsMoreThanThereIsIsRefused) {
  EXPECT_TRUE(checkMemory(1 << 20, 1 << 20, 4).isOk());
  const Status refused = checkMemory(uint64_t{2} << 30, uint64_t{1} << 30, 64);
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_NE(refused.message().find("64 hosts need 2.0 GiB, and this machine has 1.0 GiB"),
            std::string::npos)
      << refused.message();
}

TEST(ExactMemory, GrowsWithHostsAndModel) {
  EXPECT_GE(exactBytes(8'000'000, 64), uint64_t{2} * 8'000'000 * 64);
  EXPECT_EQ(exactBytes(8'000'000, 64), 64 * exactBytes(8'000'000, 1));
  EXPECT_GT(availableBytes(), 1U << 20);
}

}  // namespace
}  // namespace sluice::sim
