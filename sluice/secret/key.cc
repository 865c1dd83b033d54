#include <sluice/secret/key.h>

#include <algorithm>

#include <sluice/secret/key_memory.h>
#include <sluice/secret/sodium.h>

namespace sluice::secret {

Key::Key() : place_(takeKeyPlace()) {}

Key::Key(std::span<const std::byte, kKeyBytes> bytes) : Key() {
  std::ranges::copy(bytes, place_);
}

Key::~Key() {
  giveBackKeyPlace(place_);
}

Key& Key::operator=(const Key& other) {
  std::ranges::copy(other.bytes(), place_);
  return *this;
}

Key Key::random() {
  Key key;
  fillRandom(key.mutableBytes());
  return key;
}

bool operator==(const Key& a, const Key& b) {
  // The comparison takes the same time wherever keys differ, so that nobody learns by the clock
  // how much of a guess was right.
  return sodium_memcmp(a.place_, b.place_, kKeyBytes) == 0;
}

void fillRandom(std::span<std::byte> bytes) {
  startSodium();
  randombytes_buf(bytes.data(), bytes.size());
}

}  // namespace sluice::secret
