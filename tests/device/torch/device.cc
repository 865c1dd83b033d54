#include <tests/device/torch/device.h>

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdlib>

namespace sluice::pretend {

namespace {

constexpr size_t kBytesPerDevice = size_t{8} << 30;  // sparse

std::atomic<Machine*> theMachine = nullptr;

struct Current {
  c10::DeviceIndex device = 0;
  std::array<StreamIndex, kDevices> streams{Machine::defaultStream(0), Machine::defaultStream(1)};
};
thread_local Current current;

Machine* makeMachine() {
  auto* made = new Machine(kBytesPerDevice);  // NOLINT: never destroyed, see machine()
  theMachine = made;
  std::atexit([] { theMachine.load()->halt(); });
  return made;
}

size_t checkedDevice(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && static_cast<size_t>(device) < kDevices,
              "There is no device pretend:", static_cast<int>(device), "; there are ", kDevices);
  return static_cast<size_t>(device);
}

}  // namespace

Machine& machine() {
  static Machine* const made = makeMachine();
  return *made;
}

Machine* machineIfUsed() {
  return theMachine;
}

c10::DeviceIndex currentDevice() {
  return current.device;
}

void setCurrentDevice(c10::DeviceIndex device) {
  checkedDevice(device);
  current.device = device;
}

StreamIndex indexOf(const c10::Stream& stream) {
  return Machine::defaultStream(checkedDevice(stream.device_index())) +
         static_cast<StreamIndex>(stream.id());
}

c10::Stream streamOf(StreamIndex index) {
  const size_t device = Machine::deviceOfStream(index);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, static_cast<c10::DeviceIndex>(device)),
                     static_cast<c10::StreamId>(index - Machine::defaultStream(device)));
}

StreamIndex currentStream(c10::DeviceIndex device) {
  return current.streams.at(checkedDevice(device < 0 ? current.device : device));
}

void setCurrentStream(StreamIndex stream) {
  current.streams.at(Machine::deviceOfStream(stream)) = stream;
}

}  // namespace sluice::pretend
