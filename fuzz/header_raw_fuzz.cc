// Headers as a stranger can make them: any bytes at all.
#include <cstring>

#include "header_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const sluice::secret::Key kKey = sluice::fuzz::fixedKey();
  sluice::wire::HeaderBytes bytes{};
  std::memcpy(bytes.data(), data, std::min(size, bytes.size()));
  sluice::fuzz::mustHold(bytes, kKey);
  return 0;
}
