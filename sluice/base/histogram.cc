#include <sluice/base/histogram.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include <sluice/base/check.h>

namespace sluice::base {
namespace {

// Returns the sum, or the longest duration if the sum does not fit: the sum is at least that long.
Duration saturatingSum(Duration a, Duration b) {
  Duration::rep sum = 0;
  return __builtin_add_overflow(a.count(), b.count(), &sum) ? Duration::max() : Duration(sum);
}

}  // namespace

// Below kSteps a bucket is one nanosecond. Above, the highest bit gives the power of two, and the
// four bits after it give the step.
size_t Histogram::bucketOf(uint64_t nanoseconds) {
  if (nanoseconds < kSteps) return nanoseconds;
  const auto shift = static_cast<size_t>(std::bit_width(nanoseconds)) - 5;
  return shift * kSteps + (nanoseconds >> shift);
}

uint64_t Histogram::upperEnd(size_t bucket) {
  if (bucket < 2 * kSteps) return bucket;
  const size_t shift = bucket / kSteps - 1;
  return ((bucket - shift * kSteps + 1) << shift) - 1;
}

void Histogram::record(Duration d) {
  SLUICE_DCHECK(d >= Duration::zero(), d.count());
  ++counts_[bucketOf(static_cast<uint64_t>(d.count()))];
  ++count_;
  sum_ = saturatingSum(sum_, d);
  max_ = std::max(max_, d);
}

void Histogram::add(const Histogram& other) {
  std::ranges::transform(counts_, other.counts_, counts_.begin(), std::plus<>());
  count_ += other.count_;
  sum_ = saturatingSum(sum_, other.sum_);
  max_ = std::max(max_, other.max_);
}

Duration Histogram::quantile(double q) const {
  const auto wanted =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(q * static_cast<double>(count_))));
  uint64_t seen = 0;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += counts_[bucket];
    // A bucket's upper end may lie above all values in it, but max_ is exact.
    if (seen >= wanted) return std::min(max_, Duration(upperEnd(bucket)));
  }
  return max_;
}

}  // namespace sluice::base
