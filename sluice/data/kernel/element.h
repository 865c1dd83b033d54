// Reads and writes one element of a DType in bytes that may lie at any address: slices arrive in
// message buffers, and a header or a slice of odd length before them leaves no alignment to rely
// on. For loop bodies (level.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <sluice/base/check.h>
#include <sluice/data/kernel/float16.h>
#include <sluice/model.h>

namespace sluice::kernel {

template <typename T>
SLUICE_KERNEL T loadAt(const std::byte* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
SLUICE_KERNEL void storeAt(std::byte* bytes, size_t index, T value) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}

// Compute is the type an element is calculated in; load and store convert.
struct F32 final {
  using Compute = float;
  SLUICE_KERNEL static float load(const std::byte* b, size_t i) { return loadAt<float>(b, i); }
  SLUICE_KERNEL static void store(std::byte* b, size_t i, float v) { storeAt(b, i, v); }
};

struct F64 final {
  using Compute = double;
  SLUICE_KERNEL static double load(const std::byte* b, size_t i) { return loadAt<double>(b, i); }
  SLUICE_KERNEL static void store(std::byte* b, size_t i, double v) { storeAt(b, i, v); }
};

struct BF16 final {
  using Compute = float;
  SLUICE_KERNEL static float load(const std::byte* b, size_t i) {
    return f32FromBf16(loadAt<uint16_t>(b, i));
  }
  SLUICE_KERNEL static void store(std::byte* b, size_t i, float v) {
    storeAt(b, i, bf16FromF32(v));
  }
};

struct F16 final {
  using Compute = float;
  SLUICE_KERNEL static float load(const std::byte* b, size_t i) {
    return f32FromF16(loadAt<uint16_t>(b, i));
  }
  SLUICE_KERNEL static void store(std::byte* b, size_t i, float v) { storeAt(b, i, f16FromF32(v)); }
};

template <typename Element>
using Accumulator = std::conditional_t<std::is_same_v<typename Element::Compute, double>, F64, F32>;

// Turns the DType of a message into a type at compile time, so that a loop body is compiled for
// each. REQUIRES: checkArithmetic(dtype) (reduce.h)
template <typename F>
decltype(auto) withElement(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32: return f(F32{});
    case DType::kF64: return f(F64{});
    case DType::kBF16: return f(BF16{});
    case DType::kF16: return f(F16{});
    case DType::kBytes: break;
  }
  base::checkFailed("arithmetic on a DType without numbers", sluice::name(dtype), __FILE__,
                    __LINE__);
}

}  // namespace sluice::kernel
