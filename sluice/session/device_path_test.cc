// Two ranks train with gradients on a pretend device that does all work late.
#include <sluice/session/device_path.h>

#include <atomic>
#include <barrier>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/options.h>
#include <sluice/data/staging/testing/pretend_device.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>

namespace sluice::session {
namespace {

using staging::testing::PretendBytes;
using staging::testing::PretendDevice;
using ::testing::HasSubstr;

constexpr std::array<size_t, 3> kDeviceElements{7, 30'000, 500};
constexpr uint32_t kDeviceRanks = 2;

class StageCounts final : public StageObserver {
 public:
  void onStage(const StageEvent& event) override {
    counts_.with([&](auto& counts) { ++counts[event.stage]; });
  }
  void onWait(const WaitEvent& /*event*/) override {}
  size_t of(Stage stage) {
    return counts_.with([&](auto& counts) { return counts[stage]; });
  }

 private:
  base::Guarded<std::map<Stage, size_t>> counts_;
};

struct DeviceRank {
  PretendDevice device;
  StageCounts stages;
  std::unique_ptr<DevicePath> path;
  net::LoopThread thread{"rank"};
  std::unique_ptr<Trainer> trainer;
  std::atomic<size_t> wrong = 0;
};

class DeviceWorld final {
 public:
  DeviceWorld(const std::string& algorithm, pretend::Mode mode)
      : algorithm_(algorithm), hub_(kDeviceRanks), everybody_(kDeviceRanks) {
    EXPECT_TRUE(config_.set(option::kStagingBytes, "65536").isOk());
    EXPECT_TRUE(config_.set(option::kSliceElements, "1000").isOk());
    for (uint32_t r = 0; r < kDeviceRanks; ++r) {
      ranks_.push_back(std::make_unique<DeviceRank>());
      ranks_[r]->device.machine().set({.mode = mode});
    }
    onEveryRank([&](uint32_t r) { start(r); });
  }
  ~DeviceWorld() {
    for (auto& rank : ranks_) rank->path->end();
    for (auto& rank : ranks_) rank->trainer.reset();
  }
  DeviceWorld(const DeviceWorld&) = delete;
  DeviceWorld& operator=(const DeviceWorld&) = delete;

  void onEveryRank(const std::function<void(uint32_t)>& task) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < kDeviceRanks; ++r) threads.emplace_back([&, r] { task(r); });
    for (auto& thread : threads) thread.join();
  }

  DeviceRank& rank(uint32_t r) { return *ranks_[r]; }
  size_t slices() { return rank(0).trainer->plan().slices().size(); }

  // One step of one rank. Rank 1 has no gradient for the last tensor.
  void step(uint32_t r, float value) {
    DeviceRank& rank = *ranks_[r];
    std::vector<std::shared_ptr<PretendBytes>> results(kDeviceElements.size());
    for (uint32_t t = kDeviceElements.size(); t-- > 0;) {
      auto gradient = newMemory(rank, t);
      results[t] = gradient;
      if (r == 1 && t + 1 == kDeviceElements.size()) {
        const Status sent =
            rank.path->gradientAbsent(TensorId{t}, {nullptr, gradient, rank.device.mark()});
        ASSERT_TRUE(sent.isOk()) << sent.toString();
        continue;
      }
      launch(rank, *gradient, [value, r](std::span<float> numbers) {
        std::iota(numbers.begin(), numbers.end(), value + 2 * static_cast<float>(r));
      });
      const Status sent =
          rank.path->gradientReady(TensorId{t}, {gradient, gradient, rank.device.mark()});
      ASSERT_TRUE(sent.isOk()) << sent.toString();
    }
    for (uint32_t t = 0; t < kDeviceElements.size(); ++t) {
      const Status here = rank.path->wait(TensorId{t});
      ASSERT_TRUE(here.isOk()) << here.toString();
      const bool isHalf = t + 1 == kDeviceElements.size();
      launch(rank, *results[t], [&rank, value, isHalf](std::span<float> numbers) {
        float number = value;
        for (const float found : numbers) {
          rank.wrong += found == (isHalf ? number / 2 : number + 1) ? 0 : 1;
          ++number;
        }
      });
    }
    rank.device.machine().synchronizeDevice(0);
  }

  static std::shared_ptr<PretendBytes> newMemory(DeviceRank& rank, uint32_t tensor) {
    return std::make_shared<PretendBytes>(rank.device.machine(), rank.device.stream(),
                                          kDeviceElements[tensor] * sizeof(float));
  }

 private:
  template <typename Kernel>
  static void launch(DeviceRank& rank, const PretendBytes& bytes, Kernel&& kernel) {
    auto& machine = rank.device.machine();
    std::byte* const address = bytes.address();
    machine.launch(rank.device.stream(),
                   [&machine, address, elements = bytes.size() / sizeof(float), kernel] {
                     kernel(std::span(reinterpret_cast<float*>(machine.reach(address)), elements));
                   },
                   {{reinterpret_cast<uintptr_t>(address), true}});
  }

  void start(uint32_t r) {
    DeviceRank& rank = *ranks_[r];
    plan::PlanSpec spec;
    for (const size_t elements : kDeviceElements)
      spec.model.tensors.push_back({"t" + std::to_string(elements), elements, DType::kF32});
    spec.roles = plan::parseRoles("all", kDeviceRanks).value();
    spec.strategy = algorithm_;
    ASSERT_TRUE(algorithms::findAlgorithm(spec.strategy).value()->choose(config_, spec).isOk());
    rank.path = DevicePath::make(rank.device, config_, &rank.stages).value();
    TrainingSpec training{.plan = plan::Plan::make(spec).value(),
                          .update = optimizer::parseOptimizerSpec("mean-gradient").value(),
                          .memory = {},
                          .results = rank.path.get()};
    auto trainer =
        Trainer::start(std::move(training), config_, &rank.stages, [&](fabric::Receiver& receiver) {
          auto fabric = hub_.join(Rank{r}, rank.thread.loop(), receiver);
          everybody_.arrive_and_wait();  // nobody sends before all are there
          return Result<std::unique_ptr<fabric::Fabric>>(std::move(fabric));
        });
    ASSERT_TRUE(trainer.isOk()) << trainer.status().toString();
    rank.trainer = *std::move(trainer);
    ASSERT_TRUE(rank.path->begin(*rank.trainer).isOk());
  }

  const std::string algorithm_;
  base::Config config_;
  fabric::LoopbackHub hub_;
  std::barrier<> everybody_;
  std::vector<std::unique_ptr<DeviceRank>> ranks_;
};

bool isServed(std::string_view algorithm) {
  return algorithm == "sluice" || algorithm == "p3";
}

class Devices : public testing::TestWithParam<std::tuple<const char*, pretend::Mode>> {};

TEST_P(Devices, MeansComeBackToTheDevice) {
  const auto& [algorithm, mode] = GetParam();
  DeviceWorld world(algorithm, mode);
  constexpr int kSteps = 4;
  world.onEveryRank([&](uint32_t r) {
    for (int step = 0; step < kSteps; ++step) world.step(r, static_cast<float>(step));
  });
  for (uint32_t r = 0; r < kDeviceRanks; ++r) {
    EXPECT_EQ(world.rank(r).wrong, 0U);
    // All-reduces have targets of their own: there is no memory for a second copy.
    EXPECT_EQ(world.rank(r).path->mirrorBytes() > 0, isServed(algorithm));
    EXPECT_LE(world.rank(r).device.machine().statistics().peakPinnedBytes, 65536U);
    world.rank(r).path->end();
    EXPECT_EQ(world.rank(r).stages.of(Stage::kStageIn), kSteps * world.slices());
    EXPECT_EQ(world.rank(r).stages.of(Stage::kApplied), kSteps * world.slices());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, Devices,
    testing::Combine(testing::Values("sluice", "p3", "wfbp", "mgwfbp", "mgp3", "allreduce"),
                     testing::Values(pretend::Mode::kEager, pretend::Mode::kAdversary)));

TEST(DevicePath, RefusesMemoryOfAnotherSize) {
  DeviceWorld world("sluice", pretend::Mode::kEager);
  DeviceRank& rank = world.rank(0);
  const auto memory = DeviceWorld::newMemory(rank, 0);
  const Status status = rank.path->gradientReady(TensorId{1}, {memory, memory, rank.device.mark()});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("its memory on pretend:0 has 28"));
}

TEST(DevicePath, RefusesMemoryThatIsMissing) {
  DeviceWorld world("sluice", pretend::Mode::kEager);
  DeviceRank& rank = world.rank(0);
  const auto memory = DeviceWorld::newMemory(rank, 0);
  EXPECT_THAT(
      rank.path->gradientReady(TensorId{0}, {nullptr, memory, rank.device.mark()}).message(),
      HasSubstr("was given no gradient on pretend:0; call gradientAbsent() for it"));
  EXPECT_THAT(
      rank.path->gradientReady(TensorId{0}, {memory, nullptr, rank.device.mark()}).message(),
      HasSubstr("was given no memory on pretend:0 for its result"));
  EXPECT_THAT(
      rank.path->gradientAbsent(TensorId{0}, {nullptr, nullptr, rank.device.mark()}).message(),
      HasSubstr("was given no memory on pretend:0 for its result"));
}

TEST(DevicePath, RefusesTooLittlePinnedMemory) {
  base::Config config;
  ASSERT_TRUE(config.set(option::kStagingBytes, "1000").isOk());
  PretendDevice device;
  EXPECT_THAT(DevicePath::make(device, config, nullptr).status().message(),
              HasSubstr("staging-bytes is 1000; pretend:0 needs at least 65536"));
}

TEST(DevicePath, ADeviceThatFailsEndsTheSession) {
  DeviceWorld world("sluice", pretend::Mode::kEager);
  DeviceRank& rank = world.rank(0);
  rank.device.breakDown();
  const auto memory = DeviceWorld::newMemory(rank, 0);
  ASSERT_TRUE(rank.path->gradientReady(TensorId{0}, {memory, memory, rank.device.mark()}).isOk());
  EXPECT_THAT(rank.path->wait(TensorId{0}).message(), HasSubstr("pretend:0 has failed"));
}

}  // namespace
}  // namespace sluice::session
