// Which elements of a slice have changed since each worker was told: a bit for each element and
// worker. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::shard {

class Changes final {
 public:
  // Nothing has.
  Changes(size_t workers, size_t elements);

  // These have, for everybody. REQUIRES: each below the number of elements.
  void mark(std::span<const uint32_t> places);
  void markAll();

  // What has, for this worker, ascending; from now on it knows.
  std::vector<uint32_t> take(size_t worker);

 private:
  const size_t elements_;
  std::vector<std::vector<uint64_t>> marks_;  // by worker
};

}  // namespace sluice::shard
