// The checkpoint of the all-reduce engine, which also carries its state over when groups change.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <sluice/algorithms/reduction/reduction_engine.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/log.h>

namespace sluice::algorithms {

void Reduction::changeGroups(const ReductionSettings& settings) {
  // State belongs to tensors, not to groups: it is taken out by tensor, and put back into the
  // new groups, as if a checkpoint had been made and loaded in between.
  const ReductionState state = remember();
  settings_ = settings;
  makeGroups();
  std::vector<const TensorState*> saved;
  for (const TensorState& tensor : state.tensors) saved.push_back(&tensor);
  for (size_t g = 0; g < groups_.size(); ++g) putBack(g, state, saved, /*isOurs=*/true);
}

Result<std::vector<std::byte>> Reduction::take() {
  if (settings_.delay == 0 && settings_.codec == nullptr && publishesMean())
    return std::vector<std::byte>();
  if (!std::ranges::all_of(groups_, &ReductionGroup::isAtRest))
    return Status(Code::kInvalidArgument, "a state can be saved between two steps only");
  ReductionState state = remember();
  for (uint32_t t = 0; t < tensors().size() && !publishesMean(); ++t)
    state.tensors[t].optimizer = states_[t].toBytes();
  return state.toBytes();
}

// Returns the state of the groups, by TensorId. REQUIRES: all are at rest
ReductionState Reduction::remember() const {
  ReductionState state{.rank = index(context_.fabric.rank()),
                       .steps = groups_.front().steps(),
                       .rounds = static_cast<uint32_t>(count())};
  for (uint32_t t = 0; t < tensors().size(); ++t)
    state.tensors.push_back(groupOf(TensorId{t}).save(placeOf(TensorId{t})));
  return state;
}

// Puts states back into one group. `saved` is by TensorId; null if nothing was saved.
void Reduction::putBack(size_t number, const ReductionState& state,
                        std::span<const TensorState* const> saved, bool isOurs) {
  const auto& [first, last] = settings_.groups[number];
  groups_[number].restore(saved.subspan(first, last - first + 1), state, isOurs);
}

// Checks a state against this job. `saved` holds its tensors by TensorId; null if a tensor has no
// state.
Status Reduction::checkState(const ReductionState& state,
                             std::span<const TensorState* const> saved) const {
  if (state.rounds > settings_.delay || (state.rounds > 0 && state.steps < settings_.warmUp)) {
    return {Code::kInvalidArgument,
            "it holds delayed gradients; use --algorithm pipe as when it was saved, or call "
            "drain() before saving"};
  }
  for (const TensorState& tensor : state.tensors) {
    if (std::ranges::find(saved, &tensor) == saved.end())
      return {Code::kInvalidArgument, fmt::format("this job trains no tensor '{}'", tensor.name)};
  }
  for (uint32_t t = 0; t < saved.size(); ++t) {
    if (saved[t] == nullptr) continue;
    SLUICE_RETURN_IF_ERROR(groupOf(TensorId{t}).check(placeOf(TensorId{t}), *saved[t]));
    if (saved[t]->optimizer.empty()) continue;
    SLUICE_ASSIGN_OR_RETURN(const auto optimizer,
                            optimizer::OptimizerState::fromBytes(saved[t]->optimizer));
    if (optimizer.optimizer() != states_[t].optimizer() ||
        optimizer.dtype() != states_[t].dtype() || optimizer.elements() != states_[t].elements()) {
      return {Code::kInvalidArgument, fmt::format("'{}' was trained with {}, or had another size",
                                                  saved[t]->name, optimizer.optimizer())};
    }
  }
  return base::ok();
}

Status Reduction::restore(std::span<const std::byte> bytes) {
  // Everything is checked before anything changes, so a state that does not fit leaves training
  // as it was. Tensors are found by name: a checkpoint of other groups, or of another order of
  // tensors, still fits.
  if (!std::ranges::all_of(groups_, &ReductionGroup::isAtRest))
    return {Code::kInvalidArgument, "a state can be put back between two steps only"};
  ReductionState state;
  if (!bytes.empty()) {
    SLUICE_ASSIGN_OR_RETURN(state, ReductionState::fromBytes(bytes));
  }
  std::map<std::string_view, const TensorState*> byName;
  for (const TensorState& tensor : state.tensors) byName[tensor.name] = &tensor;
  std::vector<const TensorState*> saved;
  for (const Tensor& tensor : tensors()) {
    const auto found = byName.find(tensor.name);
    saved.push_back(found == byName.end() ? nullptr : found->second);
  }
  if (const Status fits = checkState(state, saved); !fits.isOk())
    return fits.withContext("the saved state does not fit");

  const bool isOurs = state.rank == index(context_.fabric.rank());
  if (settings_.codec != nullptr && !isOurs && !bytes.empty()) {
    log("strategy")
        .warn(
            "rank {} goes on from rank {}'s checkpoint: what {} had kept back of its own gradients "
            "is lost; save on every rank",
            context_.fabric.rank(), state.rank, settings_.codec->name());
  }
  // The groups change on the loop, which tells others how many bytes they have under way.
  SLUICE_RETURN_IF_ERROR(inPieces(context_.fabric.loop(), groups_.size(), [&](size_t g) {
    putBack(g, state, saved, isOurs);
    return kPieceBytes;
  }));
  for (uint32_t t = 0; t < saved.size(); ++t) {
    if (saved[t] == nullptr || saved[t]->optimizer.empty()) {
      states_[t] = {states_[t].optimizer(), states_[t].dtype(), states_[t].elements()};
    } else {
      states_[t] =
          optimizer::OptimizerState::fromBytes(saved[t]->optimizer).value();  // checked above
    }
  }
  return base::ok();
}

}  // namespace sluice::algorithms
