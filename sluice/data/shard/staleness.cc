#include <sluice/data/shard/staleness.h>

#include <algorithm>

#include <sluice/base/check.h>

namespace sluice::shard {

uint64_t Staleness::slowest() const {
  uint64_t slowest = kUnbounded;
  for (size_t worker = 0; worker < clocks_.size(); ++worker) {
    // A worker that is gone must not hold the others at its last clock for ever.
    if (!isGone_[worker]) slowest = std::min(slowest, clocks_[worker]);
  }
  return slowest == kUnbounded ? 0 : slowest;
}

void Staleness::advance(size_t worker) {
  SLUICE_CHECK(!waits_[worker] && !isGone_[worker], worker);
  ++clocks_[worker];
}

void Staleness::forget(size_t worker) {
  isGone_[worker] = true;
  waits_[worker] = false;
}

std::vector<size_t> Staleness::release() {
  std::vector<size_t> released;
  // The slowest clock is read once. Going on does not move a worker's clock; only its next part
  // does.
  const uint64_t slowest = this->slowest();
  for (size_t worker = 0; worker < clocks_.size(); ++worker) {
    if (!waits_[worker] || !mayGoOn(clocks_[worker], slowest, bound_)) continue;
    waits_[worker] = false;
    released.push_back(worker);
  }
  return released;
}

}  // namespace sluice::shard
