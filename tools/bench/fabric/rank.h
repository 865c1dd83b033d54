// One rank of a fabric measurement, in a process of its own: joins the job, makes the fabric that
// users get, and moves bytes as its task says.
#pragma once

#include <sluice/base/config.h>
#include <tools/bench/fabric/task.h>

namespace sluice::bench {

// Prints a line for each rank that is lost: "lost RANK NANOSECONDS WHY", by the steady clock, and
// one "ready NANOSECONDS" when counting begins.
Result<FabricReport> runFabricRank(const FabricTask& task, const base::Config& config,
                                   const base::Config::Values& environment);

}  // namespace sluice::bench
