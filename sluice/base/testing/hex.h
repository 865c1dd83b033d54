// Bytes as text, for tests that fix a format of files or messages byte by byte.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <fmt/format.h>

namespace sluice::base {

inline std::string hexOf(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte each : bytes) hex += fmt::format("{:02x}", std::to_integer<unsigned>(each));
  return hex;
}

}  // namespace sluice::base
