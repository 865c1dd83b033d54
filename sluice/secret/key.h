// 32 secret bytes. They lie in memory that no core dump has, are wiped when the object goes, compared
// in constant time, and have no way to be printed by accident. Any thread; a value.
#pragma once

#include <cstddef>
#include <span>

namespace sluice::secret {

inline constexpr size_t kKeyBytes = 32;

class Key final {
 public:
  Key();  // all zero: not a secret
  explicit Key(std::span<const std::byte, kKeyBytes> bytes);
  ~Key();
  Key(const Key& other) : Key(other.bytes()) {}
  Key& operator=(const Key& other);

  static Key random();

  // Returns the bytes, to be handed to a cryptographic function only.
  std::span<const std::byte, kKeyBytes> bytes() const {
    return std::span<const std::byte, kKeyBytes>(place_, kKeyBytes);
  }
  std::span<std::byte, kKeyBytes> mutableBytes() {
    return std::span<std::byte, kKeyBytes>(place_, kKeyBytes);
  }

  friend bool operator==(const Key& a,
                         const Key& b);  // takes as long for unequal keys as for equal ones

 private:
  std::byte* const place_;  // of key_memory.h
};

// Fills `bytes` from the operating system's random source.
void fillRandom(std::span<std::byte> bytes);

}  // namespace sluice::secret
