// The free parts of a range of addresses. First fit; neighbours grow together. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace sluice::pretend {

class FreeRanges final {
 public:
  FreeRanges(uintptr_t begin, size_t bytes) { free_[begin] = bytes; }

  // Takes the first free range that is long enough; empty if there is none.
  std::optional<uintptr_t> take(size_t bytes) {
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      const auto [begin, length] = *range;
      if (length < bytes) continue;
      free_.erase(range);
      if (length > bytes) free_[begin + bytes] = length - bytes;
      return begin;
    }
    return std::nullopt;
  }

  void giveBack(uintptr_t begin, size_t bytes) {
    auto range = free_.emplace(begin, bytes).first;
    if (const auto after = std::next(range);
        after != free_.end() && range->first + range->second == after->first) {
      range->second += after->second;
      free_.erase(after);
    }
    if (range == free_.begin()) return;
    if (const auto before = std::prev(range); before->first + before->second == range->first) {
      before->second += range->second;
      free_.erase(range);
    }
  }

 private:
  std::map<uintptr_t, size_t> free_;  // length by first address
};

}  // namespace sluice::pretend
