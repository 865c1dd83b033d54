// One rank of a replay, in a process of its own: it sleeps instead of computing, and really does
// all the rest.
#pragma once

#include <sluice/base/config.h>
#include <tools/bench/rank_report.h>
#include <tools/bench/rank_task.h>
#include <tools/bench/replay_place.h>

namespace sluice::bench {

// Joins the job that `environment` describes, replays, and returns what was measured. Ends with
// kDataLoss if the algorithm promises that all ranks end with the same parameters, bit for bit (if
// asked to: those of one process), and they do not. Tensors lie in host memory, and the calling
// thread is the one that "computes".
Result<RankReport> replayRank(const RankTask& task, const base::Config& config,
                              const base::Config::Values& environment);

// Does the same in another place.
Result<RankReport> replayRank(const RankTask& task, const base::Config& config,
                              const base::Config::Values& environment, ReplayPlace& place);

}  // namespace sluice::bench
