// The frame of data that sluice saves: a magic number for its kind, its version, and nothing after
// its end. A reader trusts no byte of it.
#pragma once

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include <sluice/base/byte_io.h>
#include <sluice/base/status.h>

namespace sluice::base {

struct SavedFrame {
  uint32_t magic;
  uint8_t version;
  std::string_view what;  // for people: "a saved state of training"

  void begin(ByteWriter& out) const {
    out.number(magic);
    out.number(version);
  }
  Status readBegin(ByteReader& in) const {
    if (in.number<uint32_t>() != magic)
      return unreadable("it begins with the bytes of something else");
    if (const auto found = in.number<uint8_t>(); found != version)
      return unreadable(
          fmt::format("it has version {}, and this sluice reads version {}", found, version));
    return base::ok();
  }
  // Call it after the last field.
  Status readEnd(const ByteReader& in) const {
    if (in.failed()) return unreadable("it is too short");
    return in.atEnd() ? base::ok() : unreadable("it is too long");
  }
  Status unreadable(std::string_view why) const {
    return {Code::kDataLoss,
            fmt::format("the checkpoint does not hold {}: {}; load another one", what, why)};
  }
};

}  // namespace sluice::base
