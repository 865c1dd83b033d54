// The time for which a peer has been silent, as far as we could have heard it. Time in which we
// ourselves did not run (stopped, or starved of a CPU) is ours, not the peer's: what it sent
// meanwhile lies unread in the kernel. No clock and no loop in here: the caller passes times in, so
// a test is a table of times. Belongs to its owner's loop.
#pragma once

#include <algorithm>
#include <optional>

#include <sluice/base/clock.h>

namespace sluice::fabric {

class Silence final {
 public:
  // Waiting begins now, whether or not anything has been heard yet.
  explicit Silence(TimePoint now) : heard_(now) {}

  // Updates the silence. `heard` is when the last byte came, if any; `due` is when we wanted to
  // look.
  void look(TimePoint now, std::optional<TimePoint> heard, TimePoint due) {
    if (heard && *heard > heard_) {
      heard_ = *heard;
      excused_ = Duration::zero();
    }
    excused_ += std::max(Duration::zero(), now - std::max(due, heard_));
  }

  // Says that there is a reason why nothing was heard until then.
  void excuse(TimePoint until) {
    if (until <= heard_) return;
    heard_ = until;
    excused_ = Duration::zero();
  }

  Duration length(TimePoint now) const { return now - heard_ - excused_; }
  Duration sinceHeard(TimePoint now) const { return now - heard_; }  // as the wall clock sees it
  TimePoint reaches(Duration limit) const { return heard_ + excused_ + limit; }

 private:
  TimePoint heard_;
  Duration excused_{};
};

}  // namespace sluice::fabric
