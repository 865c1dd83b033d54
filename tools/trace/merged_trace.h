// One file of the traces of all ranks, for viewers: with arrows between the ranks, and with the
// profiles of torch.profiler beside the ranks that they are of.
#pragma once

#include <span>
#include <string>

#include <sluice/base/status.h>
#include <sluice/observe/trace/rank_trace.h>

#include <tools/trace/torch_profile.h>

namespace sluice::trace {

// The profiles go into the processes of their ranks. REQUIRES: all traces are of one session and on
// one clock; checkRanks() has accepted the profiles.
Status writeMergedTrace(const std::string& path, std::span<const RankTrace> traces,
                        std::span<const TorchProfile> profiles = {});

}  // namespace sluice::trace
