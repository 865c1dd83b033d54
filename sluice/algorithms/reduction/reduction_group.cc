#include <sluice/algorithms/reduction/reduction_group.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::algorithms {

ReductionGroup::ReductionGroup(std::span<const Tensor> tensors, size_t first, bool isMean,
                               const ReductionSettings& settings)
    : tensors_(tensors),
      first_(first),
      isMean_(isMean),
      settings_(settings),
      missing_(tensors.size()) {
  // At least one packing exists from the beginning, because anyPacking() asks it where tensors
  // lie, and because memory for the first step is better taken now than in the middle of it.
  spare_.push_back(takePacking());
  if (settings.codec != nullptr && settings.keepsRest)
    feedback_.emplace(*settings.codec, spare_.front().owedElements());
}

Packing ReductionGroup::takePacking() {
  if (spare_.empty()) return {tensors_, isMean_, settings_.codec};
  Packing packing = std::move(spare_.back());
  spare_.pop_back();
  return packing;
}

bool ReductionGroup::close(Step step) {
  step_ = step;
  // A step is due when the last tensor's gate is closed, whether or not gradients were put: a
  // step of handOut() puts nothing and only takes a delayed mean. During the warm-up each step
  // gets its own mean, so that pipe begins like ordinary training.
  if (--missing_ > 0) return false;
  missing_ = tensors_.size();
  isDue_ = true;
  delay_ = 0;
  if (!filling_) return true;
  filling_->finish(feedback_ ? &*feedback_ : nullptr);
  rounds_.push_back({*std::move(filling_), step});
  filling_.reset();
  if (steps_++ >= settings_.warmUp) delay_ = settings_.delay;
  return true;
}

Round* ReductionGroup::next() {
  const auto found = std::ranges::find(rounds_, Round::State::kWaiting, &Round::state);
  return found == rounds_.end() ? nullptr : &*found;
}

bool ReductionGroup::hasNext() const {
  return std::ranges::find(rounds_, Round::State::kWaiting, &Round::state) != rounds_.end();
}

void ReductionGroup::arrived(Step step) {
  const auto round = std::ranges::find_if(rounds_, [step](const Round& one) {
    return one.state == Round::State::kUnderWay && one.step == step;
  });
  SLUICE_CHECK(round != rounds_.end(), step);
  round->state = Round::State::kHere;
}

std::optional<std::span<const std::byte>> ReductionGroup::meanOf(size_t place) const {
  if (!hasResult() || rounds_.front().packing.isEmpty(place)) return std::nullopt;
  return rounds_.front().packing.get(place);
}

void ReductionGroup::opened() {
  isDue_ = false;
  if (!hasResult()) return;
  // The buffer goes back to the spare ones with its content untouched: results without memory
  // of their own are read from it until the tensor takes part in the next step.
  spare_.push_back(std::move(rounds_.front().packing));
  rounds_.pop_front();
}

bool ReductionGroup::isAtRest() const {
  return !isDue_ && missing_ == tensors_.size() &&
         std::ranges::all_of(rounds_,
                             [](const Round& round) { return round.state == Round::State::kHere; });
}

TensorState ReductionGroup::save(size_t place) const {
  const auto copyOf = [](std::span<const std::byte> bytes) {
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  TensorState saved{.name = tensors_[place].name};
  for (const Round& round : rounds_) {
    auto& mean = saved.delayed.emplace_back();
    if (!round.packing.isEmpty(place)) mean = copyOf(round.packing.get(place));
  }
  if (feedback_) {
    saved.owed = copyOf(std::as_bytes(
        feedback_->owed().subspan(anyPacking().firstOf(place), tensors_[place].elements)));
  }
  return saved;
}

Status ReductionGroup::check(size_t place, const TensorState& saved) const {
  for (const auto& mean : saved.delayed) {
    if (mean && mean->size() != anyPacking().get(place).size())
      return {Code::kInvalidArgument,
              fmt::format("'{}' has another size or type in this job", saved.name)};
  }
  if (saved.owed.empty()) return base::ok();
  if (!feedback_ || saved.owed.size() != tensors_[place].elements * sizeof(float)) {
    return {Code::kInvalidArgument,
            fmt::format(
                "it holds what a codec kept back of '{}'; use the --codec that it was saved with",
                saved.name)};
  }
  return base::ok();
}

void ReductionGroup::restore(std::span<const TensorState* const> saved, const ReductionState& state,
                             bool hasOwed) {
  for (Round& round : rounds_) spare_.push_back(std::move(round.packing));
  rounds_.clear();
  steps_ = state.steps;
  for (size_t r = 0; r < state.rounds; ++r) {
    Packing packing = takePacking();
    for (size_t place = 0; place < saved.size(); ++place) {
      if (saved[place] != nullptr && saved[place]->delayed[r]) {
        packing.putMean(place, *saved[place]->delayed[r]);
      } else {
        packing.putNothing(place);
      }
    }
    rounds_.push_back({std::move(packing), Step{}, Round::State::kHere});
  }
  if (!feedback_) return;
  // The codec's debt was written down by tensor in f32 and comes back to the same elements,
  // wherever they lie in this group. Without the saver's own state it begins at zero: another
  // rank's debt is not this one's.
  std::vector<float> owed(anyPacking().owedElements());
  for (size_t place = 0; hasOwed && place < saved.size(); ++place) {
    if (saved[place] == nullptr || saved[place]->owed.empty()) continue;
    std::memcpy(owed.data() + anyPacking().firstOf(place), saved[place]->owed.data(),
                saved[place]->owed.size());
  }
  const Status restored = feedback_->restore(owed);
  SLUICE_CHECK(restored.isOk(), restored.toString());
}

}  // namespace sluice::algorithms
