// The user's own process group of torch.distributed, as the engine's ForeignCollective calls it
// (foreign_collective.h): Gloo, or NCCL by the same code.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <sluice/pytorch/table.h>

namespace sluice::pytorch {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

// REQUIRES: `group` outlives what is made with the result.
table::ProcessGroup giveProcessGroup(const GroupPtr& group);

}  // namespace sluice::pytorch
