// An accelerator as Python holds it: hands a session the tensors that lie there. The session copies
// them without the GIL.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <sluice/pytorch/backend/core.h>
#include <sluice/pytorch/backend/torch_device.h>
#include <sluice/pytorch/table_status.h>

namespace sluice::pytorch {

// A place in the work of a stream, which a later reader on another stream has to wait for.
struct StreamPoint {
  c10::Stream stream;
  std::shared_ptr<DeviceMark> mark;
};

class PythonDevice final {
 public:
  explicit PythonDevice(const c10::Device& device)
      : device_(device), name_(device_.name()), given_(giveDevice(device_, name_)) {}
  PythonDevice(const PythonDevice&) = delete;
  PythonDevice& operator=(const PythonDevice&) = delete;

  // Returns the address of the table::Device, for a session of the engine.
  uintptr_t address() { return reinterpret_cast<uintptr_t>(&given_); }

  // These do what those of Session do. `entrance` is the address of the session's DeviceEntrance.
  // They record on the stream that is current on the calling thread.
  Status gradientReady(uintptr_t entrance, uint32_t tensor, const at::Tensor& gradient,
                       const at::Tensor& result) {
    return call([&](table::Error* error) {
      core().gradientReady(
          at(entrance), tensor, giveBytes(TorchDevice::bytesOf(gradient)),
          result.is_same(gradient) ? table::Bytes{} : giveBytes(TorchDevice::bytesOf(result)),
          mark(), error);
    });
  }
  Status gradientAbsent(uintptr_t entrance, uint32_t tensor, const at::Tensor& result) {
    return call([&](table::Error* error) {
      core().gradientAbsent(at(entrance), tensor, giveBytes(TorchDevice::bytesOf(result)), mark(),
                            error);
    });
  }
  Status handOutDelayed(uintptr_t entrance, uint32_t tensor, const at::Tensor& result) {
    return call([&](table::Error* error) {
      core().handOutDelayed(at(entrance), tensor, giveBytes(TorchDevice::bytesOf(result)), mark(),
                            error);
    });
  }

  // Results overwrite parameters only after the work that is queued now.
  Status waitBeforeResults(uintptr_t entrance) {
    return call(
        [&](table::Error* error) { core().waitBeforeResults(at(entrance), mark(), error); });
  }

  // Returns a mark of an update that has been queued.
  StreamPoint updated() { return {device_.currentStream(), device_.mark()}; }
  // Makes the calling thread's stream wait for the update, unless it made the update itself.
  Status follow(const StreamPoint& update) {
    if (update.stream == device_.currentStream()) return {};
    return device_.makeStreamWait(*update.mark);
  }

 private:
  template <typename Call>
  static Status call(Call&& call) {
    table::Error error;
    call(&error);
    return table::statusOf(error);
  }
  static void* at(uintptr_t entrance) {
    return reinterpret_cast<void*>(entrance);  // NOLINT(performance-no-int-to-ptr): the engine's
  }
  table::Mark mark() const { return giveMark(device_.mark()); }

  TorchDevice device_;
  const std::string name_;
  const table::Device given_;
};

}  // namespace sluice::pytorch
