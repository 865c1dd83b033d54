// Counts of the work that a pretend device has done. Plain values.
#pragma once

#include <array>
#include <cstdint>

#include <sluice/base/clock.h>

namespace sluice::pretend {

enum class Direction { kToHost, kToDevice, kOnDevice };
inline constexpr size_t kDirections = 3;

struct Statistics {
  std::array<uint64_t, kDirections> copies{};  // by Direction
  std::array<uint64_t, kDirections> bytes{};   // by Direction
  uint64_t kernels = 0;
  uint64_t eventsRecorded = 0;
  uint64_t streamWaits = 0;
  // Calls in which a host thread asked to wait for a stream, an event, a device or a copy.
  uint64_t hostWaits = 0;
  // Copies whose pinned source was changed between the call and the end of the copy.
  uint64_t changedSources = 0;
  uint64_t pinnedBytes = 0;  // in use now
  uint64_t peakPinnedBytes = 0;
};

struct CopyInterval {
  Direction direction;
  TimePoint start;
  TimePoint end;
  uint64_t bytes;
};

}  // namespace sluice::pretend
