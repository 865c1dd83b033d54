#include <sluice/observe/trace/wall_clock.h>

#include <algorithm>
#include <optional>

namespace sluice::trace {

WallClock readWallClock() {
  // The thread may be held up between two clocks, but seldom each time.
  constexpr int kReadings = 5;
  std::optional<WallClock> best;
  for (int reading = 0; reading < kReadings; ++reading) {
    const TimePoint before = std::chrono::steady_clock::now();
    const Duration wall = std::chrono::system_clock::now().time_since_epoch();
    const Duration took = std::chrono::steady_clock::now() - before;
    // The wall clock was read somewhere between two readings of the steady clock. The middle is
    // the best guess, and half of the time between is the most it can be wrong.
    const WallClock read{wall - (before.time_since_epoch() + took / 2), took / 2 + Duration(1)};
    if (!best || read.uncertainty < best->uncertainty) best = read;
  }
  return *best;
}

WallClock covering(const WallClock& a, const WallClock& b) {
  // Whatever either reading allows lies in the result.
  const Duration low = std::min(a.ahead - a.uncertainty, b.ahead - b.uncertainty);
  const Duration high = std::max(a.ahead + a.uncertainty, b.ahead + b.uncertainty);
  const Duration half = (high - low) / 2;
  return {low + half, high - low - half};
}

}  // namespace sluice::trace
