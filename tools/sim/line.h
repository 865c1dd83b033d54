// A line with a rate and a queue in front of it: first in, first out. A value of its network.
//
// A segment is put in when its first byte arrives and leaves as it comes (cut-through), as if it
// were many small packets. So the time that a segment needs is known when it is put in, and costs
// O(1).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include <sluice/base/clock.h>
#include <sluice/base/units.h>

namespace sluice::sim {

// The times at which the first and the last byte of a segment leave a line.
struct Passage {
  TimePoint first;
  TimePoint last;
};

class Line final {
 public:
  Line(Rate rate, uint64_t queueBytes) : queueBytes_(queueBytes) { setRate(rate); }

  // The segments that are in the queue keep their times.
  void setRate(Rate rate) {
    nanosecondsPerByte_ = 8e9 / static_cast<double>(rate.bitsPerSecond);
    queue_ = timeOf(queueBytes_);
  }

  Duration timeOf(uint64_t bytes) const {
    return Duration(static_cast<Duration::rep>(static_cast<double>(bytes) * nanosecondsPerByte_));
  }

  // Empty if the queue has no room for the segment. `last` is when its last byte arrives.
  // REQUIRES: `first` does not go back from call to call.
  std::optional<Passage> pass(TimePoint first, TimePoint last, uint64_t bytes) {
    const TimePoint begin = std::max(first, freeAt_);
    const Duration time = timeOf(bytes);
    if (begin - first + time > queue_ && begin > first) return std::nullopt;
    freeAt_ = std::max(begin + time, last);
    return Passage{begin, freeAt_};
  }

  // The time at which the queue is empty.
  TimePoint freeAt() const { return freeAt_; }
  // The time that a full queue needs.
  Duration queue() const { return queue_; }

 private:
  uint64_t queueBytes_;
  double nanosecondsPerByte_ = 0;
  Duration queue_{};
  TimePoint freeAt_{};
};

}  // namespace sluice::sim
