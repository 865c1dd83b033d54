// The source of time. Code that decides by time takes a Clock, so that a test or a simulation
// controls the time.
#pragma once

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
