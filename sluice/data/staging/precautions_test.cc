// Leaves out one precaution at a time. The numbers must be wrong then, on a device that does work
// late wherever it may.
#include <sluice/data/staging/precautions.h>

#include <gtest/gtest.h>

#include <sluice/data/staging/testing/staged_steps.h>

namespace sluice::staging {
namespace {

// One round may miss a fault: threads decide who comes first.
constexpr int kRounds = 20;

// Returns whether a few steps show a fault. The adversary finds what the device does too late or
// too early. What the host does too late needs a device that is quick.
bool isFaulty(pretend::Mode mode) {
  testing::PretendDevice device;
  device.machine().set({.mode = mode});
  testing::StagedSteps steps(device, testing::planOf({3000, 20'000, 7, 9000}, 900), 64 << 10);
  for (int step = 0; step < 3; ++step) {
    if (!steps.step(static_cast<float>(step)).isOk() || steps.wrong() > 0) return true;
  }
  return device.machine().statistics().changedSources > 0;
}

class Precautions : public ::testing::TestWithParam<Precaution> {};

TEST(Precautions, AllTaken) {
  omitted = Precaution::kNone;
  for (int round = 0; round < 5; ++round) {
    EXPECT_FALSE(isFaulty(pretend::Mode::kAdversary));
    EXPECT_FALSE(isFaulty(pretend::Mode::kEager));
  }
}

TEST_P(Precautions, IsMissed) {
  omitted = GetParam();
  bool isSeen = false;
  for (int round = 0; round < kRounds && !isSeen; ++round)
    isSeen = isFaulty(pretend::Mode::kAdversary) || isFaulty(pretend::Mode::kEager);
  EXPECT_TRUE(isSeen);
  omitted = Precaution::kNone;
}

INSTANTIATE_TEST_SUITE_P(Each, Precautions, ::testing::ValuesIn(kPrecautions));

}  // namespace
}  // namespace sluice::staging
