// A file that holds an input, for readers that want a path: in memory, under one name.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace sluice::fuzz {

inline const std::string& fileWith(const uint8_t* data, size_t size) {
  static const int kFile = ::memfd_create("input", 0);
  static const std::string kPath = "/proc/self/fd/" + std::to_string(kFile);
  if (::ftruncate(kFile, 0) != 0 || ::fchmod(kFile, 0600) != 0) std::abort();
  if (::pwrite(kFile, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  return kPath;
}

inline void mustBeOneLine(std::string_view text) {
  if (text.find('\n') != std::string_view::npos) std::abort();
}

}  // namespace sluice::fuzz
