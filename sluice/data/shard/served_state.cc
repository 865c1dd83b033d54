#include <sluice/data/shard/served_state.h>

#include <sluice/base/saved_bytes.h>

namespace sluice::shard {
namespace {

constexpr base::SavedFrame kServedFrame{
    .magic = 0x56534c53, .version = 1, .what = "a saved state of servers"};  // "SLSV"
constexpr uint32_t kMostSlices = 100'000'000;
constexpr size_t kLongestTensorName = 10'000;
constexpr size_t kServedWords =
    32;  // more than the counts and lengths of the whole, and of one slice

}  // namespace

std::vector<std::byte> toBytes(std::span<const ServedState> states) {
  base::ByteWriter out;
  // The length is known beforehand, so that the states of a large model are written once and
  // not moved again and again while the buffer grows.
  size_t bytes = kServedWords;
  for (const ServedState& each : states)
    bytes += kServedWords + each.tensor.size() + each.state.savedBytes();
  out.reserve(bytes);
  kServedFrame.begin(out);
  out.number(static_cast<uint32_t>(states.size()));
  for (const ServedState& each : states) {
    out.text(each.tensor);
    out.number(each.offset);
    out.block(each.state.toBytes());
  }
  return std::move(out).take();
}

Result<std::vector<ServedState>> servedStatesFromBytes(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  SLUICE_RETURN_IF_ERROR(kServedFrame.readBegin(in));
  const uint32_t count = in.count(kMostSlices, /*bytesEach=*/20);
  std::vector<ServedState> states;
  for (uint32_t n = 0; n < count; ++n) {
    std::string tensor = in.text(kLongestTensorName);
    const auto offset = in.number<uint64_t>();
    const auto content = in.block();
    if (in.failed()) break;
    SLUICE_ASSIGN_OR_RETURN(auto state, optimizer::OptimizerState::fromBytes(content));
    states.push_back({std::move(tensor), offset, std::move(state)});
  }
  SLUICE_RETURN_IF_ERROR(kServedFrame.readEnd(in));
  return states;
}

}  // namespace sluice::shard
