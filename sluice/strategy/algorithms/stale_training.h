// asp and ssp, which differ only in how far apart workers may be: with gradients as they are, or,
// by --dgc, compressed.
#pragma once

#include <cstdint>
#include <memory>

#include <sluice/strategy/server/stale.h>

namespace sluice::strategy {

// Cuts as the other servers do, or, with --dgc, for compression.
Status chooseStale(const base::Config& config, plan::PlanSpec& spec);

// Nobody is more than `bound` steps ahead of the slowest (shard/staleness.h).
Result<std::unique_ptr<Strategy>> makeStale(const Context& context, uint64_t bound, Pulls pulls);

}  // namespace sluice::strategy
