// Remembers the elements of a slice that have changed since each worker was told: a bit for each
// element and worker. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::shard {

class Changes final {
 public:
  // Starts without changes.
  Changes(size_t workers, size_t elements);

  // Records that these elements have changed, for all workers. REQUIRES: each below the number of
  // elements.
  void mark(std::span<const uint32_t> places);
  void markAll();

  // Returns the changed elements that this worker has not been told of, in ascending order. From
  // now on it knows them.
  std::vector<uint32_t> take(size_t worker);

 private:
  const size_t elements_;
  std::vector<std::vector<uint64_t>> marks_;  // by worker
};

}  // namespace sluice::shard
