#include <sluice/observe/metrics/counts.h>

namespace sluice::metrics {

// No other data is ordered by these counters, so relaxed access, the cheapest, is enough.
constexpr auto kRelaxed = std::memory_order_relaxed;

void Counts::onStage(const StageEvent& event) {
  slices_[static_cast<size_t>(event.stage)].fetch_add(1, kRelaxed);
}

void Counts::onWait(const WaitEvent& event) {
  waited_.at(index(event.tensor)).fetch_add((event.to - event.from).count(), kRelaxed);
}

std::array<uint64_t, kPath.size()> Counts::slicesByStage() const {
  std::array<uint64_t, kPath.size()> counts{};
  for (size_t stage = 0; stage < counts.size(); ++stage)
    counts[stage] = slices_[stage].load(kRelaxed);
  return counts;
}

std::vector<Duration> Counts::waitedByTensor() const {
  std::vector<Duration> waited;
  waited.reserve(waited_.size());
  for (const auto& each : waited_) waited.emplace_back(each.load(kRelaxed));
  return waited;
}

}  // namespace sluice::metrics
