// The memory of all devices of a machine: a caching allocator with free lists per stream, as those
// of real devices. A freed block is at once available to the stream for which it was allocated,
// whose next work is later than every use on that stream. A block that was used on other streams,
// too, becomes available only when these have passed the point at which it was freed; the program
// has to tell the allocator of such uses (recordStream).
//
// Freed blocks are overwritten with 0xff, in the order of their stream: a program that still uses
// one gets wrong numbers (NaN in floating point).
//
// Not thread-safe: the machine's mutex guards it.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include <tests/device/runtime/free_ranges.h>
#include <tests/device/runtime/schedule.h>
#include <tests/device/runtime/two_mappings.h>

namespace sluice::pretend {

class DeviceMemory final {
 public:
  DeviceMemory(size_t devices, size_t bytesPerDevice);

  // Returns the address of a block for work on this stream; empty if the device's memory is full.
  std::optional<uintptr_t> allocate(size_t device, size_t bytes, StreamIndex stream,
                                    const Schedule& schedule);

  struct Freed {
    uintptr_t block;
    size_t bytes;
    StreamIndex stream;
  };
  // Returns the block if the caller must overwrite it in the order of its stream; empty if it is
  // overwritten later, or is no block.
  std::optional<Freed> free(uintptr_t block, const Schedule& schedule);

  // The block is used on this stream, which is not its own.
  void recordStream(uintptr_t address, StreamIndex stream);

  // Gives blocks that are not in use back to the system. REQUIRES: no stream has work.
  void emptyCache(const Schedule& schedule);

  // Returns the first address of the block in use that holds this address; empty if there is none.
  std::optional<uintptr_t> blockOf(uintptr_t address) const;
  size_t deviceOf(uintptr_t address) const {
    return (address - mappings_.begin()) / bytesPerDevice_;
  }
  const TwoMappings& mappings() const { return mappings_; }

  size_t usedBytes(size_t device) const { return used_[device]; }
  size_t peakBytes(size_t device) const { return peak_[device]; }
  void resetPeak(size_t device) { peak_[device] = used_[device]; }

 private:
  struct Block {
    size_t device;
    size_t bytes;
    StreamIndex stream;
    std::vector<StreamIndex> others;  // told by recordStream
  };
  struct Waiting {  // a freed block that other streams may still use
    uintptr_t block;
    size_t device;
    size_t bytes;
    StreamIndex stream;
    std::vector<Place> places;
  };
  using Shelf = std::tuple<size_t, StreamIndex, size_t>;  // device, stream, bytes

  // Makes blocks available that no other stream uses any more.
  void collect(const Schedule& schedule);

  const size_t bytesPerDevice_;
  TwoMappings mappings_;
  std::vector<FreeRanges> ranges_;     // by device
  std::map<uintptr_t, Block> blocks_;  // in use
  std::multimap<Shelf, uintptr_t> cached_;
  std::vector<Waiting> waiting_;
  std::vector<size_t> used_;  // by device
  std::vector<size_t> peak_;  // by device
};

}  // namespace sluice::pretend
