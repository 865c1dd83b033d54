#include <sluice/data/staging/stager.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/data/staging/testing/staged_steps.h>

namespace sluice::staging {
namespace {

using ::testing::HasSubstr;
using testing::planOf;
using testing::PretendDevice;
using testing::StagedSteps;
using ::testing::StartsWith;

constexpr size_t kSmall = 64 << 10;  // pinned bytes: pieces of 16 KiB

std::vector<uint64_t> someTensors() {
  return {10, 30'000, 1, 5000, 12'345, 100'000, 4096};
}

TEST(Stager, BringsGradientsOutAndResultsIn) {
  PretendDevice device;
  StagedSteps steps(device, planOf(someTensors(), 1000), kSmall);
  for (int step = 0; step < 20; ++step)
    ASSERT_TRUE(steps.step(static_cast<float>(step)).isOk()) << step;
  EXPECT_EQ(steps.wrong(), 0U);
  EXPECT_EQ(device.machine().statistics().changedSources, 0U);
}

TEST(Stager, IsRightWhateverTheDeviceDoesLate) {
  PretendDevice device;
  device.machine().set({.mode = pretend::Mode::kAdversary});
  StagedSteps steps(device, planOf(someTensors(), 1000), kSmall);
  for (int step = 0; step < 3; ++step)
    ASSERT_TRUE(steps.step(static_cast<float>(step)).isOk()) << step;
  EXPECT_EQ(steps.wrong(), 0U);
}

TEST(Stager, IsRightWithRandomDelays) {
  PretendDevice device;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    device.machine().set({.mode = pretend::Mode::kRandom, .seed = seed});
    StagedSteps steps(device, planOf({3000, 20'000, 7}, 900), kSmall);
    for (int step = 0; step < 4; ++step)
      ASSERT_TRUE(steps.step(static_cast<float>(step)).isOk()) << step;
    EXPECT_EQ(steps.wrong(), 0U) << seed;
  }
}

TEST(Stager, CopiesToTargetsThatAreToldInEachStep) {
  using Targets = StagedSteps::Targets;
  for (const Targets targets : {Targets::kToldEarly, Targets::kToldLate}) {
    for (const auto mode : {pretend::Mode::kEager, pretend::Mode::kAdversary}) {
      PretendDevice device;
      device.machine().set({.mode = mode});
      StagedSteps steps(device, planOf(someTensors(), 1000), kSmall, CopyOrder::kOldestFirst,
                        targets);
      for (int step = 0; step < 3; ++step)
        ASSERT_TRUE(steps.step(static_cast<float>(step)).isOk()) << step;
      EXPECT_EQ(steps.wrong(), 0U);
    }
  }
}

TEST(Stager, KeepsCopiesUntilTheirTargetIsTold) {
  PretendDevice device;
  StagedSteps steps(device, planOf({3000, 30'000}, 1000), kSmall, CopyOrder::kUrgentFirst,
                    StagedSteps::Targets::kByTest);
  steps.backward(TensorId{1}, 1);
  steps.backward(TensorId{0}, 5);
  device.machine().synchronizeDevice(0);
  EXPECT_EQ(steps.stager().wait(TensorId{1}, std::chrono::milliseconds(20)).code(), Code::kTimeout);
  for (const uint32_t t : {0U, 1U}) {
    const size_t slices = t == 0 ? 3 : 30;
    EXPECT_EQ(steps.stager().describeWait(TensorId{t}),
              fmt::format("{0} of {0} slices not yet copied from pretend:0", slices));
  }
  EXPECT_LE(device.machine().statistics().peakPinnedBytes, kSmall);
  steps.tellTarget(TensorId{0});
  steps.tellTarget(TensorId{1});
  ASSERT_TRUE(steps.forward(TensorId{0}, 6).isOk());
  ASSERT_TRUE(steps.forward(TensorId{1}, 2).isOk());
  EXPECT_EQ(steps.wrong(), 0U);
}

// The others may be done with a step in which this rank has no gradient before it has begun.
TEST(Stager, CopiesAResultAfterAStepWithoutOneThatEndedBeforeItBegan) {
  PretendDevice device;
  StagedSteps steps(device, planOf({100}, 1000), kSmall);
  auto first = std::make_shared<testing::PretendBytes>(device.machine(), device.stream(), 400);
  auto second = std::make_shared<testing::PretendBytes>(device.machine(), device.stream(), 400);
  steps.stager().noResult(TensorId{0});
  steps.stager().begin(TensorId{0}, {nullptr, first, device.mark()});
  const std::vector<float> result(100, 3.F);
  steps.stager().onResult(TensorId{0}, Step{1}, 0, 400,
                          {std::as_bytes(std::span(result)), nullptr});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  steps.stager().begin(TensorId{0}, {nullptr, second, device.mark()});
  ASSERT_TRUE(steps.stager().wait(TensorId{0}, std::chrono::seconds(20)).isOk());
  device.machine().synchronizeDevice(0);
  const auto* const numbers =
      reinterpret_cast<const float*>(device.machine().reach(second->address()));
  EXPECT_EQ(numbers[99], 3.F);
}

// The memory of a result may be given up before it is copied: the stager keeps it.
TEST(Stager, KeepsAResultUntilItIsCopied) {
  PretendDevice device;
  StagedSteps steps(device, planOf({100}, 1000), kSmall);
  auto result = std::make_shared<std::vector<float>>(100, 3.F);
  const std::weak_ptr<const void> kept = result;
  steps.stager().onResult(TensorId{0}, Step{}, 0, 400, {std::as_bytes(std::span(*result)), result});
  result.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(kept.expired());  // the rank has not begun the step
  auto memory = std::make_shared<testing::PretendBytes>(device.machine(), device.stream(), 400);
  steps.stager().begin(TensorId{0}, {nullptr, memory, device.mark()});
  ASSERT_TRUE(steps.stager().wait(TensorId{0}, std::chrono::seconds(20)).isOk());
  for (int look = 0; look < 1000 && !kept.expired(); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(kept.expired());
  device.machine().synchronizeDevice(0);
  const auto* const numbers =
      reinterpret_cast<const float*>(device.machine().reach(memory->address()));
  EXPECT_THAT(std::span(numbers, 100), ::testing::Each(3.F));
}

// SLUICE_PINNED_SEEDS sets a number of seeds, each with 100 MB of gradients instead of 16.
TEST(Stager, StaysWithinItsPinnedMemory) {
  const char* const wanted = std::getenv("SLUICE_PINNED_SEEDS");
  const uint64_t seeds = wanted == nullptr ? 1 : std::stoull(wanted);
  std::vector<uint64_t> tensors{3'000'000, 1'000'000, 10};
  std::vector<size_t> sizes{size_t{64} << 10, size_t{1} << 20, size_t{8} << 20, size_t{64} << 20};
  if (wanted != nullptr) {
    tensors = {10, 1'000'000, 9'000'000, 5'000'000, 10'000'000};
    sizes.erase(sizes.begin());  // so many small copies would take an hour
  }
  for (const size_t pinned : sizes) {
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      PretendDevice device;
      device.machine().set({.mode = pretend::Mode::kRandom, .seed = seed});
      StagedSteps steps(device, planOf(tensors, 50'000), pinned);
      ASSERT_TRUE(steps.step(1).isOk()) << pinned << " bytes, seed " << seed;
      EXPECT_EQ(steps.wrong(), 0U) << pinned << " bytes, seed " << seed;
      EXPECT_LE(device.machine().statistics().peakPinnedBytes, pinned);
    }
    if (wanted != nullptr) std::printf("%zu pinned bytes: %zu seeds\n", pinned, size_t{seeds});
  }
}

TEST(Stager, MakesFewCopies) {
  PretendDevice device;
  StagedSteps steps(device, planOf({3'000'000, 1'000'000, 10, 20}, 12'500), 8 << 20);
  ASSERT_TRUE(steps.step(1).isOk());
  EXPECT_EQ(steps.wrong(), 0U);
  const auto counted = device.machine().statistics();
  for (const auto direction : {pretend::Direction::kToHost, pretend::Direction::kToDevice})
    EXPECT_LE(counted.copies[static_cast<size_t>(direction)], 16U + 4U);  // 16 MB, 4 tensors
}

// SLUICE_LARGE_TENSOR sets another number of elements.
TEST(Stager, SendsTheFirstSliceOfALargeGradientEarly) {
  const char* const wanted = std::getenv("SLUICE_LARGE_TENSOR");
  const uint64_t elements = wanted == nullptr ? 5'000'000 : std::stoull(wanted);
  constexpr double kBytesPerSecond = 0.5e9;
  const auto pieceTime = std::chrono::duration<double>((2 << 20) / kBytesPerSecond);
  PretendDevice device;
  StagedSteps steps(device, planOf({elements}, 12'500), 8 << 20);
  auto gradient = steps.compute(TensorId{0}, 1);
  device.machine().synchronizeDevice(0);
  device.machine().set({.bytesPerSecond = kBytesPerSecond});
  steps.handOver(TensorId{0}, std::move(gradient));
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_LE(steps.awaitFirstSlice(), kCopiesUnderWay);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begun;
  if (wanted != nullptr) std::printf("first slice after %.2f pieces\n", waited / pieceTime);
}

// Copies take their time here, so that gradients wait for their turn.
TEST(Stager, TakesUrgentTensorsFirst) {
  PretendDevice device;
  device.machine().set({.copyLatency = std::chrono::milliseconds(2)});
  StagedSteps steps(device, planOf({100, 20'000, 20'000, 20'000}, 1000), kSmall);
  for (uint32_t t = 4; t-- > 0;) steps.backward(TensorId{t}, 1);
  ASSERT_TRUE(steps.forward(TensorId{0}, 2).isOk());
  // The three other tensors have five pieces each; at most two copies were under way.
  EXPECT_FALSE(steps.stager().isQueued(TensorId{1}));
  for (uint32_t t = 1; t < 4; ++t) ASSERT_TRUE(steps.forward(TensorId{t}, 2).isOk());
  EXPECT_EQ(steps.wrong(), 0U);
}

TEST(Stager, TakesTheOldestFirstIfToldSo) {
  PretendDevice device;
  device.machine().set({.copyLatency = std::chrono::milliseconds(1)});
  StagedSteps steps(device, planOf({100, 20'000, 20'000}, 1000), kSmall, CopyOrder::kOldestFirst);
  for (uint32_t t = 3; t-- > 0;) steps.backward(TensorId{t}, 1);
  for (uint32_t t = 0; t < 3; ++t) ASSERT_TRUE(steps.forward(TensorId{t}, 2).isOk());
  EXPECT_EQ(steps.wrong(), 0U);
  EXPECT_EQ(steps.order().front(), TensorId{2});
  EXPECT_EQ(steps.order().back(), TensorId{0});
}

TEST(Stager, SaysWhatItWaitsFor) {
  PretendDevice device;
  device.machine().set({.copyLatency = std::chrono::milliseconds(200)});
  StagedSteps steps(device, planOf({3000}, 1000), kSmall);
  steps.backward(TensorId{0}, 1);
  EXPECT_EQ(steps.stager().describeWait(TensorId{0}),
            "3 of 3 slices not yet copied from pretend:0");
  const Status status = steps.stager().wait(TensorId{0}, std::chrono::milliseconds(1));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("'t0' was not copied to pretend:0 within"));
  ASSERT_TRUE(steps.forward(TensorId{0}, 2).isOk());
}

TEST(Stager, EndsAWaitThatIsInterrupted) {
  PretendDevice device;
  StagedSteps steps(device, planOf({3000}, 1000), kSmall);
  steps.stager().begin(TensorId{0}, {});  // no gradient, and no result comes
  const Status status = steps.stager().wait(TensorId{0}, std::chrono::minutes(1),
                                            [] { return Status(Code::kCancelled, "interrupted"); });
  EXPECT_EQ(status.code(), Code::kCancelled);
}

TEST(Stager, ReportsADeviceThatFails) {
  PretendDevice device;
  StagedSteps steps(device, planOf({3000}, 1000), kSmall);
  device.breakDown();
  steps.backward(TensorId{0}, 1);
  EXPECT_THAT(steps.forward(TensorId{0}, 2).message(), StartsWith("pretend:0 has failed"));
  steps.stager().stop();  // the listener has heard of it then
  EXPECT_THAT(steps.failure().message(), StartsWith("pretend:0 has failed"));
}

TEST(Stager, StopsInTheMiddle) {
  PretendDevice device;
  device.machine().set({.copyLatency = std::chrono::milliseconds(20)});
  StagedSteps steps(device, planOf({50'000, 50'000}, 1000), kSmall);
  steps.backward(TensorId{1}, 1);
  steps.backward(TensorId{0}, 1);
  steps.stager().stop();
  EXPECT_EQ(steps.stager().wait(TensorId{0}, std::chrono::seconds(5)).code(), Code::kCancelled);
}

TEST(Stager, ForgetsAStepWithoutResult) {
  PretendDevice device;
  StagedSteps steps(device, planOf({3000}, 1000), kSmall);
  for (int round = 0; round < 3; ++round) {
    auto result =
        std::make_shared<testing::PretendBytes>(device.machine(), device.stream(), 12'000);
    const std::weak_ptr<const void> kept = result;
    steps.stager().begin(TensorId{0}, {nullptr, std::move(result), device.mark()});
    steps.stager().noResult(TensorId{0});
    for (int look = 0; look < 1000 && !kept.expired(); ++look)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(kept.expired());
  }
  ASSERT_TRUE(steps.step(1).isOk());
  EXPECT_EQ(steps.wrong(), 0U);
}

}  // namespace
}  // namespace sluice::staging
