// The events that one rank has seen on the path of slices, as a value. A recorder gives it, a file
// keeps it, and merging and the critical path work on it. Any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/observe/trace/wall_clock.h>
#include <sluice/observer.h>
#include <sluice/transport/fabric/watch/clock_offset.h>

#include <sluice/base/ids.h>

namespace sluice::trace {

struct RankTrace {
  std::string session{};
  Rank rank{};
  std::vector<std::string> tensors{};  // names, by TensorId
  std::vector<StageEvent> events{};    // in the order in which they happened
  std::vector<WaitEvent> waits{};      // in the order in which they ended
  uint64_t lost = 0;                   // earlier events and waits, for which there was no room
  std::map<Rank, fabric::ClockOffset> clocks{};  // offsets of the others' clocks from this rank's
  std::optional<WallClock> wall{};  // empty: a simulation, or an older version of sluice wrote it

  // Return when the earliest event or wait began and the latest ended; the clock's zero for an
  // empty trace.
  TimePoint begin() const;
  TimePoint end() const;
};

// Moves everything by `by`, as seen on another clock.
void shift(RankTrace& trace, Duration by);

}  // namespace sluice::trace
