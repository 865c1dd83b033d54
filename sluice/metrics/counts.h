// Counts what happens on the path of slices: how many entered each stage, and how long the forward pass stood
// before each layer's gate. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/plan/stage_observer.h>

namespace sluice::metrics {

class Counts final : public plan::StageObserver {
 public:
  explicit Counts(size_t tensors) : waited_(tensors) {}

  void onStage(const plan::StageEvent& event) override;
  void onWait(const plan::WaitEvent& event) override;

  std::array<uint64_t, plan::kPath.size()> slicesByStage() const;
  std::vector<Duration> waitedByTensor() const;

 private:
  std::array<std::atomic<uint64_t>, plan::kPath.size()> slices_{};
  std::vector<std::atomic<Duration::rep>> waited_;
};

}  // namespace sluice::metrics
