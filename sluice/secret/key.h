// 32 secret bytes. They are wiped when the object goes, compared in constant time, and have no way
// to be printed by accident. Any thread; a value.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace sluice::secret {

inline constexpr size_t kKeyBytes = 32;

class Key final {
 public:
  Key() = default;  // all zero: not a secret
  explicit Key(std::span<const std::byte, kKeyBytes> bytes);
  ~Key();
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;

  static Key random();

  // Returns the bytes, to be handed to a cryptographic function only.
  std::span<const std::byte, kKeyBytes> bytes() const { return bytes_; }
  std::span<std::byte, kKeyBytes> mutableBytes() { return bytes_; }

  friend bool operator==(const Key& a,
                         const Key& b);  // takes as long for unequal keys as for equal ones

 private:
  std::array<std::byte, kKeyBytes> bytes_{};
};

// Fills `bytes` from the operating system's random source.
void fillRandom(std::span<std::byte> bytes);

}  // namespace sluice::secret
