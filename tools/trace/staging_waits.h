// Says how long the ranks of a job with devices waited for staging: for copies between a device and
// the host, and nothing else. Pure functions.
//
// An iteration of a rank goes from the moment at which its last gradient of one step is there to the
// same moment of the next. The rank computes in it except while it waits at a gate. Each moment of
// such a wait belongs to one of these, the first that fits:
//   network   some rank has a slice in the queue, on its way to a server, or on its way back
//   staging   some rank has a slice that is to be copied or is being copied, either way
//   other     the rest: sums, other ranks' computing, threads that wake up late
// So "staging" is the time in which neither this rank's device nor the network had anything to do,
// and copies had.
//
// REQUIRES of the traces: they are on one clock, and have the times of the devices. A gradient is
// ready when its device has made it, its copy begins when the device begins it, and a wait ends when
// the device goes on. The host only knows when it has queued these.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/observe/trace/rank_trace.h>

namespace sluice::trace {

// One iteration of one rank.
struct StagingWaits {
  Step step{};  // the step whose gradients it makes
  Rank rank{};
  TimePoint begin{};
  TimePoint end{};
  Duration network{};  // waits, as above
  Duration staging{};
  Duration other{};
  Duration stagingOut{};         // the time in which copies to the host were under way
  Duration stagingOutAndPush{};  // of it, while a slice (another one) was on its way to a server
  size_t copiesBeforeFirst = 0;  // of other tensors, that a slice of the first tensor waited for

  Duration length() const { return end - begin; }
  Duration computing() const { return length() - network - staging - other; }
};

// Returns every iteration that the traces hold in full, by step and rank.
std::vector<StagingWaits> stagingWaits(std::span<const RankTrace> traces);

}  // namespace sluice::trace
