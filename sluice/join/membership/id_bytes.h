// Ids and texts as the bytes of records. For the .cc files of this folder.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include <sluice/base/byte_io.h>
#include <sluice/join/membership/random_id.h>

namespace sluice::membership {

inline void writeId(base::ByteWriter& writer, const RandomId& id) {
  for (const std::byte byte : id.bytes()) writer.number(static_cast<uint8_t>(byte));
}

inline RandomId readId(base::ByteReader& reader) {
  std::array<std::byte, kIdBytes> bytes{};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(reader.number<uint8_t>());
  return RandomId(bytes);
}

inline std::string textOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace sluice::membership
