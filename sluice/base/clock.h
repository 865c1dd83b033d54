// The source of time. Code that decides by time takes a Clock, so that a test or a simulation
// controls the time.
#pragma once

#include <atomic>
#include <chrono>

namespace sluice {
using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;  // as in observer.h
}  // namespace sluice

namespace sluice::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;  // any thread
};

class RealClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// A clock that stands still until it is told to move. Any thread.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(sinceStart_.load())); }
  void advance(Duration by) { sinceStart_.fetch_add(by.count()); }
  void advanceTo(TimePoint to) { sinceStart_.store(to.time_since_epoch().count()); }

 private:
  std::atomic<Duration::rep> sinceStart_{0};
};

inline double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
inline Duration fromSeconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

}  // namespace sluice::base

namespace sluice {
using base::Clock;
}  // namespace sluice
