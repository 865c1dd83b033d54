// The allocators of Torch's device "pretend".
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace sluice::pretend {

c10::DeviceAllocator& deviceAllocator();
at::HostAllocator& hostAllocator();

}  // namespace sluice::pretend
