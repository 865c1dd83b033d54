// The part of a session that takes tensors on a device. The module that knows Torch's C++ calls it,
// and the module with the session implements it: only virtual calls go from one to the other.
#pragma once

#include <memory>

#include <sluice/device.h>

#include <sluice/base/ids.h>
#include <sluice/base/status.h>

namespace sluice::pytorch {

class DeviceEntrance {
 public:
  virtual ~DeviceEntrance() = default;
  // These do what those of Session do.
  virtual Status gradientReady(TensorId tensor, DeviceMemory memory) = 0;
  virtual Status gradientAbsent(TensorId tensor, DeviceMemory memory) = 0;
  virtual Status handOutDelayed(TensorId tensor, DeviceMemory memory) = 0;
  // Does what DevicePath's does.
  virtual Status waitBeforeResults(std::shared_ptr<const DeviceMark> mark) = 0;
};

}  // namespace sluice::pytorch
