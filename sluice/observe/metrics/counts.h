// Counts what happens on the path of slices: how many entered each stage, and how long the forward
// pass stood before each layer's gate. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/observer.h>

namespace sluice::metrics {

class Counts final : public StageObserver {
 public:
  explicit Counts(size_t tensors) : waited_(tensors) {}

  void onStage(const StageEvent& event) override;
  void onWait(const WaitEvent& event) override;

  std::array<uint64_t, kPath.size()> slicesByStage() const;
  std::vector<Duration> waitedByTensor() const;

 private:
  std::array<std::atomic<uint64_t>, kPath.size()> slices_{};
  std::vector<std::atomic<Duration::rep>> waited_;
};

}  // namespace sluice::metrics
