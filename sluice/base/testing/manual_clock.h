// A clock that stands still until a test tells it to move. Any thread.
#pragma once

#include <atomic>

#include <sluice/base/clock.h>

namespace sluice::base {

class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(sinceStart_.load())); }
  void advance(Duration by) { sinceStart_.fetch_add(by.count()); }
  void advanceTo(TimePoint to) { sinceStart_.store(to.time_since_epoch().count()); }

 private:
  std::atomic<Duration::rep> sinceStart_{0};
};

}  // namespace sluice::base
