// How the pretend device delays work. A plain value.
#pragma once

#include <cstdint>

#include <sluice/base/clock.h>

namespace sluice::pretend {

enum class Mode {
  kEager,      // work runs as soon as its stream reaches it
  kRandom,     // each piece of work is delayed by a pseudo-random time
  kAdversary,  // work runs in the wrong order wherever the device's promises allow it
};

struct Settings {
  Mode mode = Mode::kEager;
  uint64_t seed = 0;                                       // kRandom
  Duration longestDelay = std::chrono::microseconds(300);  // kRandom: of one piece of work
  // kAdversary: the time for which work that nobody waits for is held back after the last progress
  // of the host and of other streams.
  Duration patience = std::chrono::milliseconds(1);
  double bytesPerSecond = 0;  // of copies in one direction; 0: no limit
  Duration copyLatency{0};    // of every copy
  // A copy that does not block waits if its host memory is not pinned, as CUDA's does; false: it is
  // an error. Torch's own DDP makes such copies.
  bool unpinnedCopiesWait = false;
};

}  // namespace sluice::pretend
