// Servers that apply every gradient as it arrives, and workers that may be some steps apart: the method
// behind asp and ssp (asynchronous.h).
#pragma once

#include <cstdint>
#include <memory>

#include <sluice/strategy/asynchronous.h>

namespace sluice::strategy {

enum class Pulls : uint8_t {
  kAlways,        // after every push
  kWhenTooStale,  // only when the worker's copy is older than the bound allows; in between it makes its own
                  // steps, x -= lr * g, which the next pull replaces
};

// Nobody is more than `bound` steps ahead of the slowest (shard/staleness.h).
Result<std::unique_ptr<Strategy>> makeStale(const Rooms& rooms, uint64_t bound, Pulls pulls);

}  // namespace sluice::strategy
