// Tensors that are reduced together: the gradients that are being packed, those that are on their
// way, and the means that are not handed out yet. For reduction.cc; belongs to its loop.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sluice/algorithms/reduction/packing.h>
#include <sluice/algorithms/reduction/reduction_settings.h>
#include <sluice/algorithms/reduction/reduction_state.h>

namespace sluice::algorithms {

// The gradients of one step, from when this rank has handed over all of them until their mean is
// handed out.
struct Round {
  enum class State : uint8_t { kWaiting, kUnderWay, kHere };
  Packing packing;
  Step step{};
  State state = State::kWaiting;
};

class ReductionGroup final {
 public:
  // `first` is the number of the first tensor; `isMean` is as Packing's. REQUIRES: tensors and
  // settings outlive this.
  ReductionGroup(std::span<const Tensor> tensors, size_t first, bool isMean,
                 const ReductionSettings& settings);

  std::span<const Tensor> tensors() const { return tensors_; }
  TensorId tensorAt(size_t place) const { return TensorId{static_cast<uint32_t>(first_ + place)}; }
  size_t placeOf(TensorId tensor) const { return index(tensor) - first_; }

  // Take this rank's gradients of a step. A step without any put() starts no round. put() copies
  // nothing if the gradient was written to targetFor() in this step.
  std::span<std::byte> targetFor(size_t place) { return filling().part(place); }
  void put(size_t place, std::span<const std::byte> gradient) { filling().put(place, gradient); }
  void putNothing(size_t place) { filling().putNothing(place); }

  // Notes that one more tensor's gate is closed for `step`. Returns true iff it was the last: the
  // step is due then, and the gradients that were put become a round.
  bool close(Step step);
  size_t missing() const { return missing_; }

  // The first round that waits for its reduction; null if every round has begun.
  Round* next();
  bool hasNext() const;
  void arrived(Step step);  // of a round that was under way
  const std::deque<Round>& rounds() const { return rounds_; }

  // A due step is handed the mean of the oldest round, once it is here, if there are more rounds
  // than the delay asks for; otherwise nothing.
  bool isDue() const { return isDue_; }
  bool mayOpen() const {
    return isDue_ && (!hasResult() || rounds_.front().state == Round::State::kHere);
  }
  Step step() const { return step_; }
  // Returns the mean of the tensor; empty if nobody had a gradient. REQUIRES: mayOpen()
  std::optional<std::span<const std::byte>> meanOf(size_t place) const;
  // Keeps the means where they are, even if the group goes. REQUIRES: there is one
  std::shared_ptr<const void> ownerOfMeans() const { return rounds_.front().packing.owner(); }
  // Notes that the means have been handed out. Each mean stays as it is until the tensor takes part
  // in the next step.
  void opened();

  // True iff the group is between two steps and nothing is under way.
  bool isAtRest() const;
  uint64_t steps() const { return steps_; }
  TensorState save(size_t place) const;
  Status check(size_t place, const TensorState& saved) const;
  // Puts back the saved states, by place; null if nothing was saved. `hasOwed`: the codec's debt is
  // this rank's own. REQUIRES: each was checked
  void restore(std::span<const TensorState* const> saved, const ReductionState& state,
               bool hasOwed);

 private:
  bool hasResult() const { return rounds_.size() > delay_; }
  Packing takePacking();
  Packing& filling() {
    if (!filling_) filling_.emplace(takePacking());
    return *filling_;
  }
  // Returns a packing that knows where everything lies. REQUIRES: isAtRest()
  const Packing& anyPacking() const {
    return rounds_.empty() ? spare_.front() : rounds_.front().packing;
  }

  const std::span<const Tensor> tensors_;
  const size_t first_;
  const bool isMean_;
  const ReductionSettings& settings_;
  std::optional<codec::ErrorFeedback> feedback_;  // null: no codec, or its rest is lost
  std::vector<Packing> spare_;
  std::optional<Packing> filling_;  // with the gradients of the step that is being handed over
  size_t missing_;                  // tensors whose gates are not closed for it
  std::deque<Round> rounds_;        // the oldest first
  Step step_{};                     // that gates were last closed for
  bool isDue_ = false;
  size_t delay_ = 0;    // of the step that is due
  uint64_t steps_ = 0;  // with gradients, over all of training
};

}  // namespace sluice::algorithms
