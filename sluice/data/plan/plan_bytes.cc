// serialise and deserialise of a PlanSpec.
#include <fmt/format.h>

#include <sluice/base/byte_io.h>
#include <sluice/data/plan/plan.h>

namespace sluice::plan {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kMaxSettings = 4096;
constexpr size_t kMaxSettingBytes = 1 << 20;

void write(base::ByteWriter& writer, const std::vector<Rank>& ranks) {
  writer.number(static_cast<uint32_t>(ranks.size()));
  for (const Rank rank : ranks) writer.number(index(rank));
}

std::vector<Rank> readRanks(base::ByteReader& reader) {
  std::vector<Rank> ranks(reader.count(kMaxWorld, sizeof(uint32_t)));
  for (Rank& rank : ranks) rank = Rank{reader.number<uint32_t>()};
  return ranks;
}

Model readModel(base::ByteReader& reader) {
  constexpr size_t kTensorBytes = sizeof(uint32_t) + sizeof(uint64_t) + sizeof(uint8_t);
  Model model;
  model.tensors.resize(reader.count(kMaxTensors, kTensorBytes));
  for (Tensor& tensor : model.tensors) {
    tensor.name = reader.text(kMaxNameBytes);
    tensor.elements = reader.number<uint64_t>();
    tensor.dtype = DType{reader.number<uint8_t>()};
  }
  return model;
}

Status malformed(std::string_view why) {
  return {Code::kDataLoss, fmt::format("the plan's bytes are malformed: {}", why)};
}

}  // namespace

std::vector<std::byte> serialise(const PlanSpec& spec) {
  base::ByteWriter writer;
  writer.number(kVersion);
  writer.number(index(spec.epoch));
  writer.number(static_cast<uint32_t>(spec.model.tensors.size()));
  for (const Tensor& tensor : spec.model.tensors) {
    writer.text(tensor.name);
    writer.number(tensor.elements);
    writer.number(static_cast<uint8_t>(tensor.dtype));
  }
  writer.number(spec.roles.world);
  write(writer, spec.roles.servers);
  write(writer, spec.roles.workers);
  writer.number(static_cast<uint8_t>(spec.slicing.placement));
  writer.number(spec.slicing.sliceElements);
  writer.number(spec.slicing.minMessageElements);
  writer.number(spec.slicing.seed);
  writer.number(spec.slicing.hostsPerRack);
  writer.text(spec.strategy);
  writer.number(static_cast<uint32_t>(spec.settings.size()));
  for (const auto& [key, value] : spec.settings) {
    writer.text(key);
    writer.text(value);
  }
  return std::move(writer).take();
}

Result<PlanSpec> deserialise(std::span<const std::byte> bytes) {
  base::ByteReader reader(bytes);
  // The version is read before anything else, since the bytes behind it may mean something
  // different there. A reader that has failed already is reported below as malformed.
  if (const auto version = reader.number<uint32_t>(); version != kVersion && !reader.failed()) {
    return Status(Code::kRefused, fmt::format("the plan has version {}, and this rank reads "
                                              "version {}; run the same sluice on all ranks",
                                              version, kVersion));
  }
  PlanSpec spec;
  spec.epoch = Epoch{reader.number<uint32_t>()};
  spec.model = readModel(reader);
  spec.roles.world = reader.number<uint32_t>();
  spec.roles.servers = readRanks(reader);
  spec.roles.workers = readRanks(reader);
  const auto placement = reader.number<uint8_t>();
  spec.slicing.placement = Placement{placement};
  spec.slicing.sliceElements = reader.number<uint64_t>();
  spec.slicing.minMessageElements = reader.number<uint64_t>();
  spec.slicing.seed = reader.number<uint64_t>();
  spec.slicing.hostsPerRack = reader.number<uint32_t>();
  spec.strategy = reader.text(kMaxNameBytes);
  const auto settings = reader.count(kMaxSettings, 2 * sizeof(uint32_t));
  for (uint32_t i = 0; i < settings; ++i) {
    auto key = reader.text(kMaxNameBytes);
    auto value = reader.text(kMaxSettingBytes);
    // The keys must ascend, or the same spec could be written in two ways.
    if (!spec.settings.empty() && key <= spec.settings.rbegin()->first) {
      return malformed("settings out of order");
    }
    spec.settings.emplace(std::move(key), std::move(value));
  }
  // After its first failure the reader gives zeros, so that one check here covers all fields.
  if (reader.failed()) return malformed("a length does not fit");
  if (!reader.atEnd()) return malformed("bytes are left over");
  // The bytes may come from another version of sluice. A placement that this one does not know
  // must not reach a switch.
  if (name(spec.slicing.placement) == "?") return malformed("unknown placement");
  SLUICE_RETURN_IF_ERROR(check(spec.model).withContext("the plan received"));
  SLUICE_RETURN_IF_ERROR(check(spec.roles).withContext("the plan received"));
  return spec;
}

}  // namespace sluice::plan
