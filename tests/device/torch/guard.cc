// Tells Torch's generic code (torch.Stream, torch.Event, autograd, c10::Event) how to use streams
// and events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <tests/device/torch/device.h>

namespace sluice::pretend {

namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Device getDevice() const override { return {kType, currentDevice()}; }
  void setDevice(c10::Device device) const override { setCurrentDevice(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) setCurrentDevice(device.index());
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device former = getDevice();
    setDevice(device);
    return former;
  }

  c10::Stream getStream(c10::Device device) const override {
    return streamOf(currentStream(device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, withIndex(device));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return streamOf(machine().newStream(static_cast<size_t>(withIndex(device).index())));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*isHigh*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream former = getStream(stream.device());
    setCurrentStream(indexOf(stream));
    return former;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return machine().isDone(indexOf(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    machine().synchronize(indexOf(stream));
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    machine().synchronizeDevice(static_cast<size_t>(device < 0 ? currentDevice() : device));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    machine().record(indexOf(stream), *static_cast<Event*>(*event));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) machine().wait(indexOf(stream), *static_cast<Event*>(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || machine().isDone(*static_cast<Event*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) machine().synchronize(*static_cast<Event*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(from != nullptr && to != nullptr, "Both events must be recorded");
    const Duration elapsed =
        machine().elapsed(*static_cast<Event*>(from), *static_cast<Event*>(to));
    return base::seconds(elapsed) * 1e3;
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    machine().recordStream(data.get(), indexOf(stream));
  }

 private:
  c10::Device withIndex(c10::Device device) const {
    return device.has_index() ? device : getDevice();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

}  // namespace sluice::pretend
