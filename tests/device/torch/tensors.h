// Tensors of the device, seen by the CPU's kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <tests/device/torch/device.h>

namespace sluice::pretend {

inline bool isOnDevice(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

// A CPU tensor over the same bytes. It owns nothing, so it may be dropped on any thread. Only
// kernels may read or write it.
at::Tensor hostView(const at::Tensor& tensor);

// A tensor of the device with the storage of `base`, and with the sizes, strides, offset and type
// of `view`.
at::Tensor deviceView(const at::Tensor& base, const at::Tensor& view);

// A new tensor of the device. The bytes of `result` reach it when the current stream comes to it.
at::Tensor upload(const at::Tensor& result, c10::DeviceIndex device);
// Queues the bytes of `result` for a tensor of the same sizes.
void uploadTo(const at::Tensor& target, const at::Tensor& result);

// Changes the size of a storage, and keeps its bytes.
void resizeStorage(c10::StorageImpl* storage, size_t bytes);

Use useOf(const at::Tensor& tensor, bool writes);

// Kernels on the threads of streams use as many threads as the thread that called them.
int threadsForKernels();
void useThreads(int threads);

}  // namespace sluice::pretend
