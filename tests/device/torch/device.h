// The machine behind Torch's device "pretend", and the device and streams that are current on a
// thread.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <tests/device/runtime/machine.h>

namespace sluice::pretend {

// The machine of this process. It is made by the first use, so that a process which has only
// imported the module can fork. It is never destroyed: tensors may outlive everything. At the end
// of the process its work stops, before Torch's own objects go.
Machine& machine();
// Null if there was no use yet.
Machine* machineIfUsed();

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

c10::DeviceIndex currentDevice();
void setCurrentDevice(c10::DeviceIndex device);

// Torch counts the streams of each device from 0, which is the default stream.
StreamIndex indexOf(const c10::Stream& stream);
c10::Stream streamOf(StreamIndex index);
StreamIndex currentStream(c10::DeviceIndex device);  // -1: of the current device
void setCurrentStream(StreamIndex stream);

}  // namespace sluice::pretend
