// Torch's questions about the device as a whole.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <tests/device/torch/allocators.h>
#include <tests/device/torch/tensors.h>

namespace sluice::pretend {

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }

  void setCurrentDevice(c10::DeviceIndex device) const override {
    pretend::setCurrentDevice(device);
  }
  c10::DeviceIndex getCurrentDevice() const override { return currentDevice(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex former = currentDevice();
    pretend::setCurrentDevice(device);
    return former;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? currentDevice() : exchangeDevice(device);
  }

  bool isPinnedPtr(const void* address) const override {
    Machine* const used = machineIfUsed();
    return used != nullptr && used->isPinned(address);
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &hostAllocator(); }
  at::Device getDeviceFromPtr(void* address) const override {
    return {kType, static_cast<c10::DeviceIndex>(machine().deviceOf(address))};
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resizeStorage(storage.unsafeGetStorageImpl(), bytes);
  }
  // Random operators use the CPU's generator, so that they give the CPU's numbers.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex /*device*/) const override {
    return at::detail::createCPUGenerator();
  }
};

const bool kIsRegistered = [] {
  c10::SetAllocator(kType, &deviceAllocator());
  at::setHostAllocator(kType, &hostAllocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // Torch never gives it back
  return true;
}();

}  // namespace

}  // namespace sluice::pretend
