// An accelerator as Python holds it: hands a session the tensors that lie there. The session copies
// them without the GIL.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include <sluice/pytorch/backend/torch_device.h>
#include <sluice/pytorch/device_entrance.h>

namespace sluice::pytorch {

// A place in the work of a stream, which a later reader on another stream has to wait for.
struct StreamPoint {
  c10::Stream stream;
  std::shared_ptr<DeviceMark> mark;
};

class PythonDevice final {
 public:
  explicit PythonDevice(const c10::Device& device) : device_(device) {}

  // Returns the address of the Device, for a session of the other module.
  uintptr_t address() { return reinterpret_cast<uintptr_t>(static_cast<Device*>(&device_)); }

  // These do what those of Session do. `entrance` is the address of the session's DeviceEntrance.
  // They record on the stream that is current on the calling thread.
  Status gradientReady(uintptr_t entrance, uint32_t tensor, const at::Tensor& gradient,
                       const at::Tensor& result) {
    const auto bytes = TorchDevice::bytesOf(gradient);
    return at(entrance).gradientReady(
        TensorId{tensor},
        {bytes, result.is_same(gradient) ? bytes : TorchDevice::bytesOf(result), device_.mark()});
  }
  Status gradientAbsent(uintptr_t entrance, uint32_t tensor, const at::Tensor& result) {
    return at(entrance).gradientAbsent(TensorId{tensor},
                                       {nullptr, TorchDevice::bytesOf(result), device_.mark()});
  }
  Status handOutDelayed(uintptr_t entrance, uint32_t tensor, const at::Tensor& result) {
    return at(entrance).handOutDelayed(TensorId{tensor},
                                       {nullptr, TorchDevice::bytesOf(result), device_.mark()});
  }

  // Results overwrite parameters only after the work that is queued now.
  Status waitBeforeResults(uintptr_t entrance) {
    return at(entrance).waitBeforeResults(device_.mark());
  }

  // Returns a mark of an update that has been queued.
  StreamPoint updated() { return {device_.currentStream(), device_.mark()}; }
  // Makes the calling thread's stream wait for the update, unless it made the update itself.
  Status follow(const StreamPoint& update) {
    if (update.stream == device_.currentStream()) return {};
    return device_.makeStreamWait(*update.mark);
  }

 private:
  static DeviceEntrance& at(uintptr_t entrance) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the other module's
    return *reinterpret_cast<DeviceEntrance*>(entrance);
  }

  TorchDevice device_;
};

}  // namespace sluice::pytorch
