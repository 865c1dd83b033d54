// Watches one rank's results as an observer of stages and, if it is given to the strategy, as a sink:
// every slice of a step is reported once, before its tensor's gate opens, and with its final bytes.
// A breach is a failed SLUICE_CHECK. Belongs to the rank's loop. Tests only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <sluice/algorithms/result_sink.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/check.h>
#include <sluice/data/gate/gates.h>
#include <sluice/data/plan/plan.h>
#include <sluice/observer.h>

namespace sluice::algorithms {

class TestWitness final : public ResultSink, public StageObserver {
 public:
  // `isSink`: the strategy reports to it. REQUIRES: the rest outlives this.
  TestWitness(const plan::Plan& plan, const gate::Gates& gates,
              std::span<const TensorMemory> memory, bool isSink)
      : plan_(plan),
        gates_(gates),
        memory_(memory),
        isSink_(isSink),
        tensors_(plan.model().tensors.size()),
        slices_(plan.slices().size()) {}

  void onResult(const SliceResult& result) override {
    const plan::Slice& slice = plan_.slice(result.slice);
    OneSlice& here = slices_[index(result.slice)];
    SLUICE_CHECK(slice.tensor == result.tensor, result.slice);
    SLUICE_CHECK(result.bytes == plan_.bytesOf(slice), result.bytes);
    SLUICE_CHECK(result.step == tensors_[index(result.tensor)].step, result.step);
    SLUICE_CHECK(!gates_.isOpen(result.tensor), result.tensor);
    SLUICE_CHECK(!tensors_[index(result.tensor)].hasNone, result.tensor);
    SLUICE_CHECK(here.content.empty() && here.staged == 1, result.slice);
    const auto part = memory_[index(result.tensor)].result.subspan(result.firstByte, result.bytes);
    SLUICE_CHECK(part.data() == partOf(plan_, memory_[index(result.tensor)].result, slice).data(),
                 result.firstByte);
    here.content.assign(part.begin(), part.end());
  }

  void onNoResult(TensorId tensor, Step step) override {
    OneTensor& here = tensors_[index(tensor)];
    SLUICE_CHECK(!gates_.isOpen(tensor) && !here.hasNone && step == here.step, tensor, step);
    here.hasNone = true;
  }

  void onStage(const StageEvent& event) override {
    if (event.stage != Stage::kApplied && event.stage != Stage::kStageIn) return;
    SLUICE_CHECK(event.step == tensors_[index(event.tensor)].step, event.tensor, event.step);
    OneSlice& here = slices_[index(event.slice)];
    ++(event.stage == Stage::kApplied ? here.applied : here.staged);
  }
  void onWait(const WaitEvent& /*event*/) override {}

  // The tensor's gate is open: all of its last step was reported. Begins the next step.
  void expectAll(TensorId tensor) {
    OneTensor& here = tensors_[index(tensor)];
    const bool isEmpty = gates_.isEmpty(tensor);
    SLUICE_CHECK(here.hasNone == (isSink_ && isEmpty), tensor, here.step);
    size_t bytes = 0;
    for (const plan::Slice& slice : plan_.slicesOf(tensor)) {
      OneSlice& one = slices_[index(slice.id)];
      const bool isStaged = isSink_ && !isEmpty;
      SLUICE_CHECK(one.staged == (isStaged ? 1 : 0), slice.id, one.staged);
      SLUICE_CHECK(one.applied == (isStaged ? 0 : 1), slice.id, one.applied);
      if (isStaged) {
        const auto part = partOf(plan_, memory_[index(tensor)].result, slice);
        SLUICE_CHECK(std::ranges::equal(one.content, part), slice.id);
      }
      bytes += one.content.size();
      one = {};
    }
    SLUICE_CHECK(bytes == (isSink_ && !isEmpty ? plan_.model()[tensor].bytes() : 0), bytes);
    here = {.step = next(here.step)};
  }

 private:
  struct OneTensor {
    Step step{};  // that was last begun
    bool hasNone = false;
  };
  struct OneSlice {
    std::vector<std::byte> content{};  // as it was reported
    int staged = 0;
    int applied = 0;
  };

  const plan::Plan& plan_;
  const gate::Gates& gates_;
  const std::span<const TensorMemory> memory_;
  const bool isSink_;
  std::vector<OneTensor> tensors_;  // by TensorId
  std::vector<OneSlice> slices_;    // by SliceId
};

}  // namespace sluice::algorithms
