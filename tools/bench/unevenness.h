// Workers of unequal speed, for replays: some are always slower, and some steps take longer now and
// then. A plain value, the same on every rank and in every run, so that all algorithms meet the
// same delays.
#pragma once

#include <cstdint>
#include <string_view>

#include <sluice/base/status.h>

namespace sluice::bench {

struct Unevenness {
  uint32_t stragglers = 0;  // this many workers, the last ones
  double stragglerFactor = 1;
  uint32_t jitterPeriod = 0;  // of this many steps of a worker, one at random is slow; 0: never
  double jitterFactor = 1;

  bool isNone() const { return stragglers == 0 && jitterPeriod == 0; }

  // Returns how many times longer this step of this worker takes.
  double factor(uint32_t worker, uint32_t workers, uint64_t step) const;

  friend bool operator==(const Unevenness&, const Unevenness&) = default;
};

// `straggler` as "1:3x": one worker computes three times longer, always. `jitter` as "0.1:3x":
// every worker does so in a tenth of its steps. With an empty text all are alike.
Result<Unevenness> parseUnevenness(std::string_view straggler, std::string_view jitter);

}  // namespace sluice::bench
