#include <tests/device/torch/allocators.h>

#include <cstring>

#include <tests/device/torch/device.h>

namespace sluice::pretend {

namespace {

void freeOnDevice(void* block) {
  machine().free(block);
}
void freePinned(void* block) {
  machine().freePinned(block);
}

constexpr size_t kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

struct OnDevice final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kType, currentDevice());
    if (bytes == 0) return {nullptr, nullptr, &freeOnDevice, device};
    try {
      void* block = machine().allocate(static_cast<size_t>(device.index()), bytes,
                                       currentStream(device.index()));
      return {block, block, &freeOnDevice, device};
    } catch (const std::bad_alloc&) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, device, " has no ", bytes, " bytes left");
    }
  }
  c10::DeleterFnPtr raw_deleter() const override { return &freeOnDevice; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    machine().copy(currentStream(-1), {Direction::kOnDevice, to, from, bytes, false, {}});
  }
  bool initialized() override { return machineIfUsed() != nullptr; }
  void emptyCache(c10::MempoolId_t /*pool*/) override { machine().emptyCache(); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    machine().recordStream(data.get(), indexOf(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[kAll].current =
        static_cast<int64_t>(machine().usedBytes(static_cast<size_t>(device)));
    stats.allocated_bytes[kAll].peak =
        static_cast<int64_t>(machine().peakBytes(static_cast<size_t>(device)));
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    machine().resetPeakBytes(static_cast<size_t>(device));
  }
};

struct Pinned final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &freePinned, c10::DeviceType::CPU};
    void* block = machine().allocatePinned(bytes);
    return {block, block, &freePinned, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &freePinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool record_event(void* address, void* /*context*/, c10::Stream stream) override {
    machine().usePinned(address, indexOf(stream));
    return true;
  }
  void empty_cache() override { machine().emptyPinnedCache(); }
  at::HostStats get_stats() override {
    at::HostStats stats;
    const Statistics statistics = machine().statistics();
    stats.active_bytes.current = static_cast<int64_t>(statistics.pinnedBytes);
    stats.active_bytes.peak = static_cast<int64_t>(statistics.peakPinnedBytes);
    return stats;
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override { machine().resetPeakPinnedBytes(); }
};

}  // namespace

c10::DeviceAllocator& deviceAllocator() {
  static auto* const allocator = new OnDevice;  // storages may outlive everything
  return *allocator;
}

at::HostAllocator& hostAllocator() {
  static auto* const allocator = new Pinned;
  return *allocator;
}

}  // namespace sluice::pretend
