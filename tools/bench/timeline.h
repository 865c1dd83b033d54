// Computing that is replayed instead of done: when each piece would begin and end. A pure value.
//
// A replay sleeps until the end of each piece. Sleeping ends late, by microseconds or, on a busy
// machine, by more; since the next piece begins where the last one *should* have ended, the delays
// do not add up.
#pragma once

#include <algorithm>

#include <sluice/base/clock.h>

namespace sluice::bench {

class Timeline final {
 public:
  explicit Timeline(TimePoint start) : end_(start) {}

  // Delays the next piece until this moment: a gate was closed until then.
  void holdUntil(TimePoint opened) { end_ = std::max(end_, opened); }

  // Adds one piece of work. Returns the moment at which it ends.
  TimePoint compute(Duration work) { return end_ += work; }

  TimePoint end() const { return end_; }

 private:
  TimePoint end_;
};

}  // namespace sluice::bench
