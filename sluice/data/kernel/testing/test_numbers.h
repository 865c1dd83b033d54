// Numbers for the tests of kernel/ and of what stands on it: the same on every machine, and of the
// kinds that go wrong (denormals, signed zeros, sizes far apart). Tests only.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sluice/base/random.h>
#include <sluice/data/kernel/element.h>

namespace sluice::kernel {

// Not std::mt19937 with a distribution: the standard leaves the distributions' results open.
class TestNumbers final {
 public:
  explicit TestNumbers(uint64_t seed) : seed_(seed) {}

  uint64_t bits() { return base::splitmix64(seed_, drawn_++); }

  // Between -1 and 1.
  double uniform() { return static_cast<double>(static_cast<int64_t>(bits()) >> 11U) * 0x1p-52; }

  // Mostly ordinary; one in eight tiny enough to be a denormal of `dtype`, or a signed zero.
  double any(DType dtype) {
    const double value = uniform();
    switch (bits() % 16) {
      case 0: return std::copysign(0.0, value);
      case 1:
        return std::ldexp(value, dtype == DType::kF64 ? -1060 : dtype == DType::kF16 ? -20 : -135);
      case 2: return value * 1000;
      default: return value;
    }
  }

  // `count` elements of `dtype`, as bytes.
  std::vector<std::byte> elements(DType dtype, size_t count, bool ordinary = false) {
    std::vector<std::byte> bytes(count * sizeOf(dtype));
    withElement(dtype, [&]<typename Element>(Element) {
      for (size_t i = 0; i < count; ++i) {
        const double value = ordinary ? uniform() : any(dtype);
        Element::store(bytes.data(), i, static_cast<typename Element::Compute>(value));
      }
    });
    return bytes;
  }

 private:
  uint64_t seed_;
  uint64_t drawn_ = 0;
};

inline uint64_t fnv1a(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3U;
  return hash;
}

}  // namespace sluice::kernel
