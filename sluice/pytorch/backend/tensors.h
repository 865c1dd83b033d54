// Turns tensors into memory in one piece, and reduces them in rank order.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <sluice/pytorch/backend/core.h>
#include <sluice/pytorch/backend/torch_device.h>

namespace sluice::pytorch {

using Reduction = c10d::ReduceOp::RedOpType;
using Lists = std::vector<std::vector<at::Tensor>>;  // by rank

std::span<std::byte> bytesOf(const at::Tensor& tensor);

// The accelerator of a process group: copies the tensors of calls to the host and their results
// back, in strips, while the program goes on.
class DeviceCopies final {
 public:
  // Throws a ValueError for too little pinned memory.
  DeviceCopies(const c10::Device& device, size_t pinnedBytes) : place_(device), device_(device) {
    auto copier = CoreCopier::make(device_, pinnedBytes);
    TORCH_CHECK_VALUE(copier.isOk(), "sluice: ", copier.status().message());
    copier_ = *std::move(copier);
  }

  const c10::Device& place() const { return place_; }
  TorchDevice& device() { return device_; }
  CoreCopier& copier() { return *copier_; }

 private:
  const c10::Device place_;
  TorchDevice device_;
  std::unique_ptr<CoreCopier> copier_;
};

// The tensors of one call. It lives until the call has ended: fabric and loop see only the tensors'
// memory.
class Operands final {
 public:
  // Returns the copies between this device and the host; makes them at the first call.
  using CopiesOf = std::function<std::shared_ptr<DeviceCopies>(const c10::Device&)>;

  explicit Operands(CopiesOf copiesOf) : copiesOf_(std::move(copiesOf)) {}

  // Return the same values in one piece, flat, in host memory. copyBack() copies values written
  // after writes() to the tensor, unless the memory is the tensor's own. The values of a tensor on
  // a device come with fetch(). Both refuse a tensor that is not dense.
  at::Tensor reads(const at::Tensor& tensor);
  at::Tensor writes(const at::Tensor& tensor);

  // Does what writes() does, for several tensors of one type as one.
  at::Tensor writesTogether(const std::vector<at::Tensor>& tensors);

  // Returns new memory of the same size.
  at::Tensor scratch(const at::Tensor& like);

  // Returns the copies that the tensors need; null if all are in host memory.
  const std::shared_ptr<DeviceCopies>& copies() const { return deviceCopies_; }

  // Copies the values of tensors on a device to the host; `arrived` runs when all are there.
  // REQUIRES: copies()
  void fetch(const Done& arrived);

  // Copies the results to their tensors, on the loop. `done` runs when that has been done, for
  // tensors on a device when the copies are queued, with the mark of their end; it is null if there
  // is no such tensor.
  void copyBack(const CoreCopier::Queued& done) const;

 private:
  // A tensor on a device, and the memory that stands for it.
  struct OnDevice {
    at::Tensor flat;  // in one piece, on the device
    at::Tensor host;
    at::Tensor target{};  // receives the result; undefined for an input
  };
  at::Tensor readsOnDevice(const at::Tensor& tensor);

  CopiesOf copiesOf_;
  std::shared_ptr<DeviceCopies> deviceCopies_;
  std::shared_ptr<DeviceMark> ready_;  // when the tensors on the device are there
  std::vector<OnDevice> onDevice_;
  std::vector<at::Tensor> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // to, from
};

// Refuses, with an error of one line, a type that cannot be reduced so.
void checkReduction(Reduction reduction, at::ScalarType type);

// Computes out = parts[0] . parts[1] . ..., in this order on every rank, so that all get the same
// bits. `out` may be one of the parts. On the loop.
void reduceInRankOrder(Reduction reduction, const at::Tensor& out,
                       const std::vector<at::Tensor>& parts);

// Makes a mean of a sum of floats, a chunk at a time: a large division would occupy Torch's
// threads.
void divide(const at::Tensor& out, size_t n);

// Sends send[r] to rank r and receives receive[r] from it; a rank's part for itself is copied.
CoreLeg moveLeg(uint32_t self, const Lists& send, const Lists& receive);

// Sends send[r] to rank r, and reduces the tensors that all ranks, this one too, have sent here
// into `out`, tensor by tensor.
CoreLeg reduceLeg(uint32_t self, const Lists& send, const std::vector<at::Tensor>& out,
                  Reduction reduction, Operands& operands);

}  // namespace sluice::pytorch
