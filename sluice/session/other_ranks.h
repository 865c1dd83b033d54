// Says where the other ranks are, for a rank that waits for one of them.
#pragma once

#include <functional>
#include <string>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/transport/fabric/watch/pulse.h>

namespace sluice::session {

// "rank 1 has been in sluice.mean() for 12 s; ranks 2-3 have been waiting for results of step 4 for
// 11 s". Ranks at the same place share a part, with the longest of their times. Those that wait for
// results come last: what they wait for is with the others. Empty if no rank has said where it is.
// `pulse` may be null. Any thread.
std::string describeOtherRanks(const fabric::Pulse* pulse, Rank self, size_t worldSize,
                               TimePoint now);

// Reports a wait that takes long: after `first`, then each time that it has taken twice as long.
// Belongs to the thread that waits.
class LongWait final {
 public:
  using Report = std::function<void(Duration waited)>;

  // REQUIRES: `clock` outlives this.
  LongWait(const Clock& clock, Duration first, Report report);

  // Call this now and then.
  void look();

 private:
  const Clock& clock_;
  const TimePoint begun_;
  Duration next_;
  const Report report_;
};

}  // namespace sluice::session
