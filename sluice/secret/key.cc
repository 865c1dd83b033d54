#include <sluice/secret/key.h>

#include <algorithm>

#include <sluice/secret/sodium.h>

namespace sluice::secret {

Key::Key(std::span<const std::byte, kKeyBytes> bytes) {
  std::ranges::copy(bytes, bytes_.begin());
}

Key::~Key() {
  sodium_memzero(bytes_.data(), bytes_.size());
}

Key Key::random() {
  Key key;
  fillRandom(key.bytes_);
  return key;
}

bool operator==(const Key& a, const Key& b) {
  // The comparison takes the same time wherever keys differ, so that nobody learns by the clock
  // how much of a guess was right.
  return sodium_memcmp(a.bytes_.data(), b.bytes_.data(), kKeyBytes) == 0;
}

void fillRandom(std::span<std::byte> bytes) {
  startSodium();
  randombytes_buf(bytes.data(), bytes.size());
}

}  // namespace sluice::secret
