// Headers as a broken or hostile member of the job can make them: any fields under a good check, so
// that the code behind the check is reached.
#include <sodium.h>

#include <cstring>

#include "header_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const sluice::secret::Key kKey = sluice::fuzz::fixedKey();
  constexpr size_t kCheckBytes = 16;
  constexpr size_t kCheckAt = sluice::wire::kHeaderBytes - kCheckBytes;
  sluice::wire::HeaderBytes bytes{};
  std::memcpy(bytes.data(), data, std::min(size, kCheckAt));
  auto* raw = reinterpret_cast<unsigned char*>(bytes.data());
  crypto_generichash(raw + kCheckAt, kCheckBytes, raw, kCheckAt,
                     reinterpret_cast<const unsigned char*>(kKey.bytes().data()),
                     kKey.bytes().size());
  sluice::fuzz::mustHold(bytes, kKey);
  return 0;
}
