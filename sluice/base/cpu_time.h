// The CPU time that the calling thread has used. What a test of costs should measure: unlike the time on the
// wall, it does not grow because somebody else is using the machine. Any thread.
#pragma once

#include <ctime>

#include <sluice/base/check.h>
#include <sluice/base/clock.h>

namespace sluice::base {

inline Duration threadCpuTime() {
  timespec time{};
  SLUICE_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace sluice::base
