// libsodium for the .cc files of this folder: started once, and with spans instead of pointers.
#pragma once

#include <sodium.h>

#include <cstddef>
#include <span>

#include <sluice/base/check.h>

namespace sluice::secret {

// Call it before any other function of libsodium; it is cheap, and safe from any thread.
inline void startSodium() {
  SLUICE_CHECK(sodium_init() >= 0);
}

template <size_t kBytes>
unsigned char* raw(std::span<std::byte, kBytes> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
template <size_t kBytes>
const unsigned char* raw(std::span<const std::byte, kBytes> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace sluice::secret
