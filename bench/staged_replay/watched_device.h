// A pretend device that remembers when copies to the host were queued and when they were made.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/mutex.h>
#include <sluice/data/staging/testing/pretend_device.h>

namespace sluice::bench {

// Any thread.
class WatchedDevice final : public Device {
 public:
  explicit WatchedDevice(size_t memoryBytes) : device_(memoryBytes) {}

  staging::testing::PretendDevice& pretend() { return device_; }

  std::string name() const override { return device_.name(); }
  Result<std::unique_ptr<PinnedBytes>> allocatePinned(size_t bytes) override {
    return device_.allocatePinned(bytes);
  }
  Result<std::shared_ptr<DeviceMark>> copyToHost(const DeviceBytes& from, size_t offset,
                                                 PinnedBytes& to, size_t count,
                                                 const DeviceMark* after) override {
    queued_.with([](auto& queued) { queued.push_back(base::RealClock().now()); });
    return device_.copyToHost(from, offset, to, count, after);
  }
  Result<std::shared_ptr<DeviceMark>> copyToDevice(PinnedBytes& from, DeviceBytes& to,
                                                   size_t offset, size_t count,
                                                   const DeviceMark* after) override {
    return device_.copyToDevice(from, to, offset, count, after);
  }
  Status makeStreamWait(const DeviceMark& mark) override { return device_.makeStreamWait(mark); }

  // The copies to the host, in order.
  struct Copy {
    TimePoint queued{};
    TimePoint begun{};
  };
  // REQUIRES: all copies have ended.
  std::vector<Copy> copiesToHost() {
    std::vector<Copy> copies;
    for (const TimePoint at : queued_.with([](auto& queued) { return queued; }))
      copies.push_back({at, at});
    // One stream makes them, so they begin and end in the order in which they were queued.
    auto copy = copies.begin();
    for (const auto& interval : device_.machine().copyIntervals()) {
      if (interval.direction == pretend::Direction::kToHost && copy != copies.end())
        (copy++)->begun = interval.start;
    }
    return copies;
  }

 private:
  staging::testing::PretendDevice device_;
  base::Guarded<std::vector<TimePoint>> queued_;
};

}  // namespace sluice::bench
