// Fits the cost of messages to the times that some messages took. Pure functions.
#pragma once

#include <span>

#include <sluice/data/timing/bounds.h>

namespace sluice::timing {

struct TimedMessage {
  double bytes = 0;
  double seconds = 0;
};

// Returns the line a + b*M with the least sum of squared errors, each over the message's time:
// large messages decide what a byte costs, and small ones what a start does. (Relative errors alone
// let a short message, which a shaper's burst lets pass at once, make all bytes seem cheap.) Either
// of a and b may come out negative. REQUIRES: two different sizes at least, and no time is zero
WireCost fitLine(std::span<const TimedMessage> messages);

}  // namespace sluice::timing
