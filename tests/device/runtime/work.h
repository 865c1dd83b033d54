// A piece of work in the queue of a stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sluice/base/clock.h>
#include <tests/device/runtime/statistics.h>

namespace sluice::pretend {

// A stream of a machine, by its number there.
using StreamIndex = size_t;

// A point in the queue of a stream: it is passed when pieces 1 to `number` are done.
struct Place {
  StreamIndex stream = 0;
  uint64_t number = 0;
};

// One version of an event. An event that is recorded again gets a new Recording.
struct Recording {
  Place place;
  TimePoint at;  // set when the stream has passed `place`; guarded by the machine's mutex
};

// A block of memory that a piece of work uses, by its first address. The adversary looks for work
// on other streams that uses the same block.
struct Use {
  uintptr_t block = 0;
  bool writes = false;
};

enum class Kind {
  kKernel,
  kFill,  // overwrites a freed block
  kCopy,
  kRecord,
  kWait,
};

struct Work {
  Kind kind = Kind::kKernel;
  std::function<void()> run;  // not for kRecord and kWait
  std::vector<Use> uses;

  Place awaited;                         // kWait
  std::shared_ptr<Recording> recording;  // kRecord

  // kCopy
  Direction direction = Direction::kOnDevice;
  uint64_t bytes = 0;
  const void* pinnedSource = nullptr;  // null if the source is not pinned memory
  // Hash of the source when the copy was called. Empty if earlier work on the device may still
  // write the source; it is then taken when the copy starts.
  std::optional<uint64_t> sourceHash;

  // Set by the schedule.
  uint64_t number = 0;  // on its stream, from 1
  uint64_t order = 0;   // among the calls of the host
};

}  // namespace sluice::pretend
