// Turns tensors into memory in one piece, and reduces them in rank order.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sluice/collective/communicator.h>

namespace sluice::pytorch {

using Reduction = c10d::ReduceOp::RedOpType;
using Lists = std::vector<std::vector<at::Tensor>>;  // by rank

std::span<std::byte> bytesOf(const at::Tensor& tensor);

// The tensors of one call. It lives until the call has ended: fabric and loop see only the tensors'
// memory.
class Operands final {
 public:
  // Return the same values in one piece, flat. copyBack() copies values written after writes() to
  // the tensor, unless the memory is the tensor's own. Both refuse a tensor that is not dense, or
  // not in the host's memory.
  at::Tensor reads(const at::Tensor& tensor);
  at::Tensor writes(const at::Tensor& tensor);

  // Does what writes() does, for several tensors of one type as one.
  at::Tensor writesTogether(const std::vector<at::Tensor>& tensors);

  // Returns new memory of the same size.
  at::Tensor scratch(const at::Tensor& like);

  void copyBack() const;  // on the loop

 private:
  std::vector<at::Tensor> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // to, from
};

// Refuses, with an error of one line, a type that cannot be reduced so.
void checkReduction(Reduction reduction, at::ScalarType type);

// out = parts[0] . parts[1] . ...; `out` may be one of them. On the loop.
void reduceInRankOrder(Reduction reduction, const at::Tensor& out,
                       const std::vector<at::Tensor>& parts);

// out = out / n, for means
void divide(const at::Tensor& out, size_t n);

// Sends send[r] to rank r and receives receive[r] from it; a rank's part for itself is copied.
collective::Leg moveLeg(uint32_t self, const Lists& send, const Lists& receive);

// Sends send[r] to rank r, and reduces the tensors that all ranks, this one too, have sent here
// into `out`, tensor by tensor.
collective::Leg reduceLeg(uint32_t self, const Lists& send, const std::vector<at::Tensor>& out,
                          Reduction reduction, Operands& operands);

}  // namespace sluice::pytorch
