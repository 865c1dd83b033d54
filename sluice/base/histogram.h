// The distribution of durations, in constant memory: every power of two is split into 16 buckets,
// so a quantile is at most 1/16 too high. Belongs to one thread.
#pragma once

#include <array>
#include <cstdint>

#include <sluice/base/clock.h>

namespace sluice::base {

class Histogram final {
 public:
  void record(Duration d);  // REQUIRES: d >= 0
  void add(const Histogram& other);

  uint64_t count() const { return count_; }
  Duration sum() const { return sum_; }  // Duration::max() if it is longer than that
  Duration max() const { return max_; }
  // Returns the smallest duration that is known to be at least as long as a share of `q` (0 to 1)
  // of the recorded durations; 0 if nothing was recorded.
  Duration quantile(double q) const;

 private:
  static constexpr size_t kSteps = 16;  // per power of two
  static constexpr size_t kBuckets = kSteps * 61;
  static size_t bucketOf(uint64_t nanoseconds);
  static uint64_t upperEnd(size_t bucket);

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t count_ = 0;
  Duration sum_{};
  Duration max_{};
};

}  // namespace sluice::base

namespace sluice {
using base::Histogram;
}  // namespace sluice
