#include <tests/device/runtime/hash.h>

#include <cstring>

namespace sluice::pretend {

uint64_t hashOf(const void* bytes, size_t size) {
  constexpr uint64_t kPrime = 0x100000001b3U;  // FNV's, on words instead of bytes
  const auto* next = static_cast<const std::byte*>(bytes);
  uint64_t hash = 0xcbf29ce484222325U;
  for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t), next += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, next, sizeof word);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32U;
  }
  for (; size > 0; --size, ++next) hash = (hash ^ static_cast<uint64_t>(*next)) * kPrime;
  return hash;
}

}  // namespace sluice::pretend
