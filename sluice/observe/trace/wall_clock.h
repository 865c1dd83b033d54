// A rank's wall clock beside its steady clock. Our traces have steady time, and those of other
// tools, such as torch.profiler, have wall time. Any thread.
#pragma once

#include <sluice/base/clock.h>

namespace sluice::trace {

struct WallClock {
  Duration ahead{};        // the wall clock, since 1970, minus the steady clock
  Duration uncertainty{};  // `ahead` is wrong by at most this
  friend bool operator==(const WallClock&, const WallClock&) = default;
};

// Reads both clocks of this machine.
WallClock readWallClock();

// Returns a WallClock that holds where either of the two does. So two readings, from the beginning
// and the end of a trace, are far apart if the wall clock was set in between.
WallClock covering(const WallClock& a, const WallClock& b);

}  // namespace sluice::trace
