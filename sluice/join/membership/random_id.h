// 128 random bits that name one thing for ever: a member, or a proposal. Written as 32 hexadecimal
// digits. Any thread; a value.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <string>
#include <string_view>

#include <sluice/base/byte_io.h>
#include <sluice/base/status.h>

namespace sluice::membership {

inline constexpr size_t kIdBytes = 16;

class RandomId {
 public:
  RandomId() = default;  // all zero: names nothing
  explicit RandomId(const std::array<std::byte, kIdBytes>& bytes) : bytes_(bytes) {}
  static RandomId random();  // from the operating system's random source

  // Takes exactly what toString() gives.
  static Result<RandomId> parse(std::string_view hex);
  std::string toString() const;

  bool isSet() const { return *this != RandomId(); }
  const std::array<std::byte, kIdBytes>& bytes() const { return bytes_; }

  friend auto operator<=>(const RandomId&, const RandomId&) = default;

 private:
  std::array<std::byte, kIdBytes> bytes_{};
};

// Write and read an id in the bytes of a record. For the .cc files of this folder.
inline void writeId(base::ByteWriter& writer, const RandomId& id) {
  for (const std::byte byte : id.bytes()) writer.number(static_cast<uint8_t>(byte));
}

inline RandomId readId(base::ByteReader& reader) {
  std::array<std::byte, kIdBytes> bytes{};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(reader.number<uint8_t>());
  return RandomId(bytes);
}

}  // namespace sluice::membership
