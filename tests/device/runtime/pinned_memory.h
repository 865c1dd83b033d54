// Pinned host memory: memory that the host and asynchronous copies may use. Freed blocks are kept
// and used again, but not while a copy from or to them is queued or running. Not thread-safe: the
// machine's mutex guards it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <tests/device/runtime/schedule.h>

namespace sluice::pretend {

class PinnedMemory final {
 public:
  void* allocate(size_t bytes, const Schedule& schedule);
  void free(void* block);
  // Frees blocks that are kept and have no copies.
  void emptyCache(const Schedule& schedule);

  // Returns the first address of the block in use that holds this address; null if there is none.
  void* blockOf(const void* address) const;
  // True iff `bytes` bytes from this address are pinned memory in use.
  bool contains(const void* address, size_t bytes) const;

  // Work up to this place uses the block. REQUIRES: the block is in use.
  void use(void* block, Place place, bool writes, const Schedule& schedule);
  // True iff queued or running work writes the block.
  bool isWritten(void* block, const Schedule& schedule) const;

  size_t usedBytes() const { return used_; }
  size_t peakBytes() const { return peak_; }
  void resetPeak() { peak_ = used_; }

 private:
  struct Delete {
    void operator()(std::byte* block) const { ::operator delete[](block, kAlignment); }
  };
  static constexpr std::align_val_t kAlignment{4096};
  struct Work {
    Place place;
    bool writes;
  };
  struct Block {
    std::unique_ptr<std::byte[], Delete> memory;
    size_t bytes = 0;
    size_t wanted = 0;  // bytes that the program asked for
    std::vector<Work> works;
  };
  static bool isFree(const Block& block, const Schedule& schedule);

  std::map<const std::byte*, Block> blocks_;  // in use
  std::multimap<size_t, Block> cached_;       // by size
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace sluice::pretend
