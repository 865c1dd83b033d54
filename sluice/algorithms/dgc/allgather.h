// All-reduce by deep gradient compression (codec/dgc.h): every worker sends the few largest of what
// its gradients have accumulated to every other, and each sums for itself, in rank order. So all
// ranks have the same parameters, bit for bit.
#pragma once

#include <cstdint>
#include <memory>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/strategy.h>

namespace sluice::algorithms {

enum class Sends : uint8_t {
  kAsReady,        // each tensor by itself, during backward (wfbp)
  kAfterBackward,  // all of them at its end (allreduce)
};

// REQUIRES: isSparse(context.plan.spec()) (settings.h). Refuses updates other than SGD.
Result<std::unique_ptr<Strategy>> makeSparseAllgather(const Context& context, Sends sends);

}  // namespace sluice::algorithms
