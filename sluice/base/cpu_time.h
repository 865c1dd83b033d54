// The CPU time that has been used. A test of costs should measure it: unlike wall-clock time, it
// does not grow when other programs use the machine. Any thread.
#pragma once

#include <ctime>

#include <sluice/base/check.h>
#include <sluice/base/clock.h>

namespace sluice::base {

inline Duration cpuTimeOf(clockid_t clock) {
  timespec time{};
  SLUICE_CHECK(clock_gettime(clock, &time) == 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

inline Duration threadCpuTime() {
  return cpuTimeOf(CLOCK_THREAD_CPUTIME_ID);
}
inline Duration processCpuTime() {
  return cpuTimeOf(CLOCK_PROCESS_CPUTIME_ID);
}

}  // namespace sluice::base
