#include <sluice/shard/served_state.h>

#include <fmt/format.h>

#include <sluice/plan/byte_io.h>

namespace sluice::shard {
namespace {

constexpr uint32_t kServedMagic = 0x56534c53;  // "SLSV"
constexpr uint8_t kServedVersion = 1;
constexpr uint32_t kMostSlices = 100'000'000;
constexpr size_t kLongestTensorName = 10'000;

}  // namespace

std::vector<std::byte> toBytes(std::span<const ServedState> states) {
  plan::ByteWriter out;
  out.number(kServedMagic);
  out.number(kServedVersion);
  out.number(static_cast<uint32_t>(states.size()));
  for (const ServedState& each : states) {
    out.text(each.tensor);
    out.number(each.offset);
    out.block(each.state.toBytes());
  }
  return std::move(out).take();
}

Result<std::vector<ServedState>> servedStatesFromBytes(std::span<const std::byte> bytes) {
  const auto unreadable = [](std::string_view why) {
    return Status(Code::kDataLoss, fmt::format("not a saved state of servers: {}", why));
  };
  plan::ByteReader in(bytes);
  if (in.number<uint32_t>() != kServedMagic) return unreadable("these bytes are something else");
  if (const auto version = in.number<uint8_t>(); version != kServedVersion)
    return unreadable(fmt::format("version {}, this sluice reads {}", version, kServedVersion));
  const uint32_t count = in.count(kMostSlices, /*bytesEach=*/20);
  std::vector<ServedState> states;
  for (uint32_t n = 0; n < count; ++n) {
    std::string tensor = in.text(kLongestTensorName);
    const auto offset = in.number<uint64_t>();
    const auto content = in.block();
    if (in.failed()) break;
    SLUICE_ASSIGN_OR_RETURN(auto state, OptimizerState::fromBytes(content));
    states.push_back({std::move(tensor), offset, std::move(state)});
  }
  if (in.failed()) return unreadable("too short");
  if (!in.atEnd()) return unreadable("too long");
  return states;
}

}  // namespace sluice::shard
