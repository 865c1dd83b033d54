#include <sluice/algorithms/reduction/reduction_state.h>

#include <sluice/base/saved_bytes.h>

namespace sluice::algorithms {
namespace {

constexpr base::SavedFrame kReductionFrame{
    .magic = 0x53525453, .version = 1, .what = "a saved state of training"};  // "STRS"
constexpr uint32_t kMostRounds = 1'000;
constexpr uint32_t kMostTensors = 1'000'000;
constexpr size_t kLongestName = 10'000;

std::vector<std::byte> copyOf(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::vector<std::byte> ReductionState::toBytes() const {
  base::ByteWriter out;
  kReductionFrame.begin(out);
  out.number(rank);
  out.number(steps);
  out.number(rounds);
  out.number(static_cast<uint32_t>(tensors.size()));
  for (const TensorState& tensor : tensors) {
    out.text(tensor.name);
    for (const auto& mean : tensor.delayed) {
      out.number(static_cast<uint8_t>(mean.has_value()));
      if (mean) out.block(*mean);
    }
    out.block(tensor.owed);
    out.block(tensor.optimizer);
  }
  return std::move(out).take();
}

Result<ReductionState> ReductionState::fromBytes(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  SLUICE_RETURN_IF_ERROR(kReductionFrame.readBegin(in));
  ReductionState state;
  state.rank = in.number<uint32_t>();
  state.steps = in.number<uint64_t>();
  state.rounds = in.number<uint32_t>();
  if (state.rounds > kMostRounds) return kReductionFrame.unreadable("too many delayed gradients");
  const uint32_t tensors = in.count(kMostTensors, /*bytesEach=*/20);
  for (uint32_t t = 0; t < tensors && !in.failed(); ++t) {
    TensorState& tensor = state.tensors.emplace_back();
    tensor.name = in.text(kLongestName);
    for (uint32_t round = 0; round < state.rounds && !in.failed(); ++round) {
      const auto isThere = in.number<uint8_t>();
      if (isThere > 1) return kReductionFrame.unreadable("a gradient is neither there nor not");
      auto& mean = tensor.delayed.emplace_back();
      if (isThere == 1) mean = copyOf(in.block());
    }
    tensor.owed = copyOf(in.block());
    tensor.optimizer = copyOf(in.block());
  }
  SLUICE_RETURN_IF_ERROR(kReductionFrame.readEnd(in));
  return state;
}

}  // namespace sluice::algorithms
