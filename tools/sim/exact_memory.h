// The memory of an exact simulation, which holds the tensors of all hosts, against that of the
// machine. Pure functions, but for availableBytes().
#pragma once

#include <cstdint>

#include <sluice/base/status.h>

namespace sluice::sim {

// Returns the bytes that an exact job takes at most: a host has its gradients and its parameters,
// the landings of the slices that it serves (shard.h), and messages that are on their way.
uint64_t exactBytes(uint64_t modelBytes, uint32_t hosts);

// Returns the bytes that this process may still take.
uint64_t availableBytes();

// Refuses a job that needs more than there is, and says what to do.
Status checkMemory(uint64_t neededBytes, uint64_t available, uint32_t hosts);

}  // namespace sluice::sim
