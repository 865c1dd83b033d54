#include <sluice/data/staging/copier.h>

#include <future>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/data/staging/testing/pretend_device.h>

namespace sluice::staging {
namespace {

using ::testing::ElementsAre;
using testing::PretendBytes;
using testing::PretendDevice;
using Numbers = std::vector<float>;

constexpr size_t kPinned = 64 << 10;  // strips of 16 KiB

class Copiers : public ::testing::TestWithParam<pretend::Mode> {
 protected:
  Copiers() { device_.machine().set({.mode = GetParam()}); }

  std::shared_ptr<PretendBytes> newMemory(size_t elements) {
    return std::make_shared<PretendBytes>(device_.machine(), device_.stream(),
                                          elements * sizeof(float));
  }
  template <typename Kernel>
  void launch(const PretendBytes& bytes, Kernel kernel) {
    std::byte* const address = bytes.address();
    device_.machine().launch(
        device_.stream(),
        [this, address, elements = bytes.size() / sizeof(float), kernel] {
          kernel(std::span(reinterpret_cast<float*>(device_.machine().reach(address)), elements));
        },
        {{reinterpret_cast<uintptr_t>(address), true}});
  }

  PretendDevice device_;
};

TEST_P(Copiers, BringTensorsToTheHostAndBack) {
  Copier copier(device_, kPinned);
  for (const size_t elements : {1, 5000, 30'000}) {
    auto source = newMemory(elements);
    launch(*source, [](auto numbers) { std::iota(numbers.begin(), numbers.end(), 1.F); });
    Numbers host(elements);
    std::promise<Status> arrived;
    copier.toHost(std::move(source), device_.mark(), std::as_writable_bytes(std::span(host)),
                  [&](const Status& status) { arrived.set_value(status); });
    ASSERT_TRUE(arrived.get_future().get().isOk());
    Numbers expected(elements);
    std::iota(expected.begin(), expected.end(), 1.F);
    EXPECT_EQ(host, expected);

    const auto target = newMemory(elements);
    std::promise<Result<std::shared_ptr<const DeviceMark>>> queued;
    copier.toDevice(std::as_bytes(std::span(host)), target, device_.mark(),
                    [&](auto mark) { queued.set_value(std::move(mark)); });
    const auto mark = queued.get_future().get();
    ASSERT_TRUE(mark.isOk());
    std::ranges::fill(host, 0.F);  // the bytes have been taken
    ASSERT_TRUE(device_.makeStreamWait(**mark).isOk());
    Numbers seen;
    launch(*target, [&](auto numbers) { seen.assign(numbers.begin(), numbers.end()); });
    device_.machine().synchronizeDevice(0);
    EXPECT_EQ(seen, expected);
  }
  EXPECT_LE(device_.machine().statistics().peakPinnedBytes, kPinned);
}

TEST_P(Copiers, ReportArrivalsInOrder) {
  std::vector<int> order;
  std::promise<void> all;
  Numbers first(20'000);
  Numbers third(10);
  {
    Copier copier(device_, kPinned);
    copier.toHost(newMemory(first.size()), device_.mark(), std::as_writable_bytes(std::span(first)),
                  [&](const Status&) { order.push_back(1); });
    copier.toHost(nullptr, nullptr, {}, [&](const Status&) { order.push_back(2); });
    EXPECT_TRUE(copier.hasToHost());
    copier.toHost(newMemory(third.size()), device_.mark(), std::as_writable_bytes(std::span(third)),
                  [&](const Status&) {
                    order.push_back(3);
                    all.set_value();
                  });
    all.get_future().wait();
  }
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

TEST_P(Copiers, EndWithAnErrorWhatHasNotArrived) {
  device_.machine().set({.copyLatency = std::chrono::milliseconds(50)});
  Numbers host(50'000);
  Code ended = Code::kOk;
  Copier copier(device_, kPinned);
  copier.toHost(newMemory(host.size()), device_.mark(), std::as_writable_bytes(std::span(host)),
                [&](const Status& status) { ended = status.code(); });
  copier.stop();
  EXPECT_EQ(ended, Code::kCancelled);
  copier.toHost(nullptr, nullptr, {}, [&](const Status& status) { ended = status.code(); });
  EXPECT_EQ(ended, Code::kCancelled);
}

TEST_P(Copiers, ReportADeviceThatFails) {
  device_.breakDown();
  Numbers host(10);
  std::promise<Status> arrived;
  Copier copier(device_, kPinned);
  copier.toHost(newMemory(host.size()), device_.mark(), std::as_writable_bytes(std::span(host)),
                [&](const Status& status) { arrived.set_value(status); });
  EXPECT_EQ(arrived.get_future().get().message(), "pretend:0 has failed");
}

INSTANTIATE_TEST_SUITE_P(Modes, Copiers,
                         ::testing::Values(pretend::Mode::kEager, pretend::Mode::kAdversary));

}  // namespace
}  // namespace sluice::staging
