// asp and ssp by deep gradient compression: the server updates its parameters with each part, and
// answers with those that have changed since its last answer to that worker
// (shard/sparse_centre.h).
#pragma once

#include <memory>

#include <sluice/algorithms/server/stale.h>

namespace sluice::algorithms {

// REQUIRES: isSparse(context.plan.spec()) (settings.h)
Result<std::unique_ptr<StaleForm>> makeSparseStale(const Context& context);

}  // namespace sluice::algorithms
