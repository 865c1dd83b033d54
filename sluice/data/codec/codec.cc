#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/data/codec/codec.h>

namespace sluice::codec {
namespace {

std::array<const Codec*, 3> all() {
  return {&kFp16, &kBf16, &kInt8};
}

}  // namespace

std::vector<std::string_view> codecNames() {
  std::vector<std::string_view> names{"none"};
  for (const Codec* codec : all()) names.push_back(codec->name());
  return names;
}

Result<const Codec*> findCodec(std::string_view name) {
  if (name == "none") return static_cast<const Codec*>(nullptr);
  for (const Codec* codec : all()) {
    if (codec->name() == name) return codec;
  }
  return Status(Code::kInvalidArgument, fmt::format("there is no codec '{}'; use one of {}", name,
                                                    fmt::join(codecNames(), ", ")));
}

}  // namespace sluice::codec
