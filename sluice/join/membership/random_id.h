// 128 random bits that name one thing for ever: a member, or a proposal. Written as 32 hexadecimal
// digits. Any thread; a value.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <string>
#include <string_view>

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

}  // namespace sluice::membership
