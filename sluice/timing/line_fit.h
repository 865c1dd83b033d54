// What messages cost, from how long some took. Pure functions.
#pragma once

#include <span>

#include <sluice/timing/bounds.h>

namespace sluice::timing {

struct TimedMessage {
  double bytes = 0;
  double seconds = 0;
};

// The line a + b*M whose errors, squared and over the time, are least: large messages decide what a
// byte costs, and small ones what a start does. (Relative errors alone let a short message, which a
// shaper's burst lets pass at once, make all bytes seem cheap.) Either may come out negative.
// REQUIRES: two different sizes at least, and no time is zero
WireCost fitLine(std::span<const TimedMessage> messages);

}  // namespace sluice::timing
