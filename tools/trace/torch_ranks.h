// The place of torch.profiler's traces beside those of their ranks. Pure functions.
#pragma once

#include <span>

#include <sluice/base/status.h>
#include <sluice/observe/trace/rank_trace.h>
#include <tools/trace/torch_profile.h>

namespace sluice::trace {

// Checks that each profile has a trace of its rank to lie beside: that the rank is known and in only
// one profile, and that profile and trace are of the same time.
Status checkRanks(std::span<const TorchProfile> profiles, std::span<const RankTrace> traces);

// Returns when something was that the wall clock of a rank dates to `wall`, on the clock of its
// trace. REQUIRES: the trace knows its wall clock.
inline TimePoint momentOf(const RankTrace& trace, Duration wall) {
  return TimePoint(wall - trace.wall->ahead);
}

}  // namespace sluice::trace
