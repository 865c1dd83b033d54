// One rank of a measurement of collectives: all-reduces with every method at every size, over the
// fabric that the configuration asks for, in step with all other ranks. Runs in its own process.
#pragma once

#include <vector>

#include <sluice/base/config.h>
#include <tools/bench/collective_task.h>

namespace sluice::bench {

// Returns the times as this rank saw them. Also checks that the sums are right.
Result<std::vector<CollectiveFigure>> runCollectiveRank(const CollectiveTask& task,
                                                        const base::Config& config,
                                                        const base::Config::Values& environment);

}  // namespace sluice::bench
