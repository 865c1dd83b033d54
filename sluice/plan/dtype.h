// The number formats of tensors on the wire and in sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::plan {

// The values are part of the wire format: never renumber.
enum class DType : uint8_t {
  kBytes = 0,  // opaque: no arithmetic
  kF32 = 1,
  kF64 = 2,
  kBF16 = 3,
  kF16 = 4,
};

constexpr size_t sizeOf(DType dtype) {
  switch (dtype) {
    case DType::kBytes: return 1;
    case DType::kF32: return 4;
    case DType::kF64: return 8;
    case DType::kBF16:
    case DType::kF16: return 2;
  }
  return 0;
}

constexpr std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kBytes: return "bytes";
    case DType::kF32: return "f32";
    case DType::kF64: return "f64";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
  }
  return "?";
}

}  // namespace sluice::plan

namespace sluice {
using plan::DType;
}  // namespace sluice
