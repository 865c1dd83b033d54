// Every rank's trace has the times of its own clock; this header puts all traces on one clock. Pure
// functions.
#pragma once

#include <span>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/observe/trace/rank_trace.h>

namespace sluice::trace {

// The distance of a rank's clock from the first trace's, and its uncertainty.
struct ClockShift {
  Rank rank{};
  Duration ahead{};        // the rank's clock, minus the first trace's
  Duration uncertainty{};  // `ahead` is wrong by at most this
};

// Moves all traces to the clock of the first. Each rank is reached over the ranks between which
// heartbeats were the quickest. Fails if some rank exchanged heartbeats with nobody.
Result<std::vector<ClockShift>> putOnOneClock(std::span<RankTrace> traces);

}  // namespace sluice::trace
