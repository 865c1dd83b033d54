// asp and ssp, which differ only in how far apart workers may be: with gradients as they are, or,
// by --dgc, compressed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/server/stale.h>
#include <sluice/base/option.h>

namespace sluice::base::option {
inline constexpr Option kMomentumAt = sameOnAllRanks(
    {"momentum-at", Kind::kChoice, "server",
     "asp, ssp: the keeper of SGD's momentum: the server, of all workers' steps; the workers, each "
     "of its own steps; or none",
     "server|workers|none"});
}  // namespace sluice::base::option

namespace sluice::algorithms {

inline constexpr auto kStaleOptions =
    joined(kShardedOptions, kDgcOptions, std::array{&option::kMomentumAt, &option::kOverlap});

// Cuts as the other servers do, or, with --dgc, for compression.
Status chooseStale(const base::Config& config, plan::PlanSpec& spec);

// Nobody is more than `bound` steps ahead of the slowest (shard/staleness.h).
Result<std::unique_ptr<Strategy>> makeStale(const Context& context, uint64_t bound, Pulls pulls);

}  // namespace sluice::algorithms
