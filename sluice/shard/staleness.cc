#include <sluice/shard/staleness.h>

#include <algorithm>

#include <sluice/base/check.h>

namespace sluice::shard {

uint64_t Staleness::slowest() const {
  return *std::ranges::min_element(clocks_);
}

void Staleness::advance(size_t worker) {
  SLUICE_CHECK(!waits_[worker], worker);
  ++clocks_[worker];
}

std::vector<size_t> Staleness::release() {
  std::vector<size_t> released;
  const uint64_t slowest = this->slowest();
  for (size_t worker = 0; worker < clocks_.size(); ++worker) {
    if (!waits_[worker] || !mayGoOn(clocks_[worker], slowest, bound_)) continue;
    waits_[worker] = false;
    released.push_back(worker);
  }
  return released;
}

}  // namespace sluice::shard
