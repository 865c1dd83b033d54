// Measures how far another rank's clock is from ours, with timestamps that go back and forth, as
// NTP does it. Serves to lay the traces of several ranks side by side. A plain value; belongs to
// its owner's loop.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include <sluice/base/clock.h>

namespace sluice::fabric {

struct ClockOffset {
  Duration offset{};     // the time of the peer's clock minus that of ours, at the same moment
  Duration roundTrip{};  // the offset is wrong by at most half of it
  friend bool operator==(const ClockOffset&, const ClockOffset&) = default;
};

// One exchange: we send at t1, it receives at t2 and answers at t3, we receive at t4; t2 and t3 are
// the peer's clock. REQUIRES: no time is farther from zero than kFarthest of life_sign.h, or twice
// that for t2.
struct ClockExchange {
  TimePoint t1, t2, t3, t4;
  ClockOffset measure() const {
    return {.offset = ((t2 - t1) + (t3 - t4)) / 2, .roundTrip = (t4 - t1) - (t3 - t2)};
  }
};

// Keeps the best of the latest exchanges: the quickest one had the least waiting in it, so the
// least error.
class OffsetEstimate final {
 public:
  void add(const ClockExchange& exchange) {
    latest_[next_++ % latest_.size()] = exchange.measure();
  }

  std::optional<ClockOffset> best() const {
    std::optional<ClockOffset> best;
    for (const auto& each : latest_) {
      if (each && (!best || each->roundTrip < best->roundTrip)) best = each;
    }
    return best;
  }

 private:
  // Clocks drift apart by some 10 us in a second: old exchanges are worse than the noise of new
  // ones.
  std::array<std::optional<ClockOffset>, 16> latest_;
  size_t next_ = 0;
};

}  // namespace sluice::fabric
