// All-reduce by deep gradient compression (codec/dgc.h): every worker sends the few largest of what
// its gradients have accumulated to every other, as each tensor becomes ready, and each sums for
// itself, in rank order. So all ranks have the same parameters, bit for bit.
#pragma once

#include <memory>

#include <sluice/strategy/context.h>
#include <sluice/strategy/strategy.h>

namespace sluice::strategy {

// REQUIRES: isSparse(context.plan.spec()) (dgc_settings.h). Refuses updates other than SGD.
Result<std::unique_ptr<Strategy>> makeSparseAllgather(const Context& context);

}  // namespace sluice::strategy
