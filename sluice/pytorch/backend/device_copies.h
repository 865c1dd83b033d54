// The accelerator of a process group: copies the tensors of calls to the host and their results
// back, in strips, while the program goes on.
#pragma once

#include <memory>

#include <sluice/data/staging/copier.h>
#include <sluice/pytorch/backend/torch_device.h>

namespace sluice::pytorch {

class DeviceCopies final {
 public:
  // REQUIRES: staging::checkPinnedBytes()
  DeviceCopies(const c10::Device& device, size_t pinnedBytes)
      : place_(device), device_(device), copier_(device_, pinnedBytes) {}

  const c10::Device& place() const { return place_; }
  TorchDevice& device() { return device_; }
  staging::Copier& copier() { return copier_; }

 private:
  const c10::Device place_;
  TorchDevice device_;
  staging::Copier copier_;
};

}  // namespace sluice::pytorch
