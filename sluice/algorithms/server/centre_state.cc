#include <sluice/algorithms/server/centre_state.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/saved_bytes.h>

namespace sluice::algorithms {
namespace {

constexpr base::SavedFrame kCentreFrame{
    .magic = 0x43525453, .version = 1, .what = "a saved state of training over servers"};  // "STRC"
constexpr uint32_t kMostSavedTensors = 1'000'000;
constexpr uint32_t kMostSavedSlices = uint32_t{1} << 24U;
constexpr size_t kLongestSavedName = 10'000;

constexpr size_t kSavedWords =
    64;  // more than the counts and lengths of the whole, and of one tensor

size_t savedBytes(const StateBySlice& states) {
  size_t bytes = 0;
  for (const auto& [offset, state] : states) bytes += 2 * sizeof(uint64_t) + state.savedBytes();
  return bytes;
}

void writeStates(base::ByteWriter& out, const StateBySlice& states) {
  out.number(static_cast<uint32_t>(states.size()));
  for (const auto& [offset, state] : states) {
    out.number(offset);
    out.block(state.toBytes());
  }
}

Result<StateBySlice> readStates(base::ByteReader& in) {
  StateBySlice states;
  // A damaged length must not make this program reserve memory for it: count() refuses a number of
  // entries that the bytes left could not hold. The tensors below are read in this way too.
  const uint32_t count = in.count(kMostSavedSlices, /*bytesEach=*/16);
  for (uint32_t n = 0; n < count; ++n) {
    const auto offset = in.number<uint64_t>();
    const auto bytes = in.block();
    if (in.failed()) break;
    SLUICE_ASSIGN_OR_RETURN(auto state, optimizer::OptimizerState::fromBytes(bytes));
    states.insert_or_assign(offset, std::move(state));
  }
  return states;
}

std::vector<std::byte> readBlock(base::ByteReader& in) {
  const auto bytes = in.block();
  return {bytes.begin(), bytes.end()};
}

Status otherModel(std::string_view tensor) {
  return {Code::kInvalidArgument,
          fmt::format("the saved state does not fit '{}': it belongs to another model", tensor)};
}

Status checkStates(const StateBySlice& states, const plan::Plan& plan, TensorId tensor,
                   const optimizer::Optimizer& optimizer) {
  const std::string& name = plan.model()[tensor].name;
  for (const auto& [offset, state] : states) {
    if (state.optimizer() != optimizer.name()) {
      return {Code::kInvalidArgument,
              fmt::format("the saved state of '{}' belongs to {}, but this job trains with {}; use "
                          "the optimizer of the checkpoint",
                          name, state.optimizer(), optimizer.name())};
    }
    const auto slices = plan.slicesOf(tensor);
    // An optimizer's state is kept by slice and cannot be cut anew: Adam's moments could be,
    // but their step count is one for the slice. So a checkpoint fits only the cut that it was
    // made with, and the error names the options that decide the cut.
    const auto slice = std::ranges::find(slices, offset, &plan::Slice::offset);
    if (slice == slices.end() || slice->count != state.elements() ||
        plan.model()[tensor].dtype != state.dtype()) {
      return {
          Code::kInvalidArgument,
          fmt::format(
              "the saved state of '{}' is cut into other slices: use as many servers as then, and "
              "the same --slice-elements",
              name)};
    }
  }
  return base::ok();
}

}  // namespace

void warnOfOthers(Rank self, Rank saver) {
  log("strategy")
      .warn(
          "rank {} goes on from rank {}'s checkpoint, and its own state begins anew; save on every "
          "rank",
          self, saver);
}

const optimizer::OptimizerState* findState(const StateBySlice& states, const plan::Slice& slice) {
  const auto found = states.find(slice.offset);
  return found == states.end() ? nullptr : &found->second;
}

std::vector<std::byte> CentreState::toBytes() const {
  base::ByteWriter out;
  // The size is summed up first, so that the bytes of a large model are written once. Growing
  // the buffer would copy gigabytes and hold twice as many for a moment.
  size_t bytes = kSavedWords;
  for (const SavedTensor& tensor : tensors) {
    bytes += kSavedWords + tensor.name.size() + tensor.centre.size() + tensor.own.size() +
             tensor.residual.size() + tensor.velocity.size() + savedBytes(tensor.served) +
             savedBytes(tensor.local);
  }
  out.reserve(bytes);
  kCentreFrame.begin(out);
  out.number(rank);
  out.number(steps);
  out.number(static_cast<uint32_t>(tensors.size()));
  for (const SavedTensor& tensor : tensors) {
    out.text(tensor.name);
    for (const auto* block : {&tensor.centre, &tensor.own, &tensor.residual, &tensor.velocity})
      out.block(*block);
    writeStates(out, tensor.served);
    writeStates(out, tensor.local);
  }
  return std::move(out).take();
}

Result<CentreState> CentreState::fromBytes(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  SLUICE_RETURN_IF_ERROR(kCentreFrame.readBegin(in));
  CentreState state;
  state.rank = in.number<uint32_t>();
  state.steps = in.number<uint64_t>();
  const uint32_t tensors = in.count(kMostSavedTensors, /*bytesEach=*/44);
  for (uint32_t t = 0; t < tensors && !in.failed(); ++t) {
    SavedTensor& tensor = state.tensors.emplace_back();
    tensor.name = in.text(kLongestSavedName);
    for (auto* block : {&tensor.centre, &tensor.own, &tensor.residual, &tensor.velocity})
      *block = readBlock(in);
    SLUICE_ASSIGN_OR_RETURN(tensor.served, readStates(in));
    SLUICE_ASSIGN_OR_RETURN(tensor.local, readStates(in));
  }
  SLUICE_RETURN_IF_ERROR(kCentreFrame.readEnd(in));
  return state;
}

Result<CentreState> CentreState::readFor(const plan::Plan& plan,
                                         const optimizer::Optimizer& optimizer,
                                         std::span<const std::byte> bytes) {
  if (bytes.empty()) return CentreState();
  SLUICE_ASSIGN_OR_RETURN(auto state, fromBytes(bytes));
  SLUICE_RETURN_IF_ERROR(state.check(plan, optimizer));
  return state;
}

const SavedTensor* CentreState::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &SavedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

Status CentreState::check(const plan::Plan& plan, const optimizer::Optimizer& optimizer) const {
  const auto& known = plan.model().tensors;
  for (const SavedTensor& tensor : tensors) {
    // Both directions are checked: a tensor that is saved but unknown here, and a tensor of
    // this job that was not saved. Either is another model, and training on from a part of one
    // would go wrong without a word.
    if (std::ranges::find(known, tensor.name, &Tensor::name) == known.end())
      return otherModel(tensor.name);
  }
  for (uint32_t t = 0; t < known.size(); ++t) {
    const SavedTensor* saved = find(known[t].name);
    if (saved == nullptr) return otherModel(known[t].name);
    for (const auto* block : {&saved->centre, &saved->own, &saved->residual, &saved->velocity}) {
      if (!block->empty() && block->size() != known[t].bytes()) return otherModel(known[t].name);
    }
    if (saved->residual.size() != saved->velocity.size()) return otherModel(known[t].name);
    SLUICE_RETURN_IF_ERROR(checkStates(saved->served, plan, TensorId{t}, optimizer));
    SLUICE_RETURN_IF_ERROR(checkStates(saved->local, plan, TensorId{t}, optimizer));
  }
  return base::ok();
}

}  // namespace sluice::algorithms
