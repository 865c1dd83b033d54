// What messages cost, from how long some took. Pure functions.
#pragma once

#include <span>

#include <sluice/plan/bounds.h>

namespace sluice::plan {

struct TimedMessage {
  double bytes = 0;
  double seconds = 0;
};

// The line a + b*M whose relative errors, squared, are least: large messages do not outvote small ones.
// Either may come out negative. REQUIRES: two different sizes at least, and no time is zero
WireCost fitLine(std::span<const TimedMessage> messages);

}  // namespace sluice::plan
