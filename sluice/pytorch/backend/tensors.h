// Tensors as memory in one piece, and sums and the like of them in rank order.
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

// The tensors of one call. It lives until the call has ended: fabric and loop see only their
// memory.
class Operands final {
 public:
  // The same values in one piece, flat. What is written there reaches the tensor by copyBack(), if
  // it is not the tensor's own memory. Refuses what is not a dense tensor in the host's memory.
  at::Tensor reads(const at::Tensor& tensor);
  at::Tensor writes(const at::Tensor& tensor);

  // Several of one type as one.
  at::Tensor writesTogether(const std::vector<at::Tensor>& tensors);

  // Memory of the same size.
  at::Tensor scratch(const at::Tensor& like);

  void copyBack() const;  // on the loop

 private:
  std::vector<at::Tensor> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // to, from
};

// Refuses, in one line, what cannot be reduced.
void checkReduction(Reduction reduction, at::ScalarType type);

// out = parts[0] . parts[1] . ...; `out` may be one of them. On the loop.
void reduceInRankOrder(Reduction reduction, const at::Tensor& out,
                       const std::vector<at::Tensor>& parts);

// out = out / n, for means
void divide(const at::Tensor& out, size_t n);

// send[r] goes to rank r, receive[r] comes from it; what a rank has for itself is copied.
collective::Leg moveLeg(uint32_t self, const Lists& send, const Lists& receive);

// send[r] goes to rank r; what all ranks, this one too, have sent here is reduced into `out`,
// tensor by tensor.
collective::Leg reduceLeg(uint32_t self, const Lists& send, const std::vector<at::Tensor>& out,
                          Reduction reduction, Operands& operands);

}  // namespace sluice::pytorch
