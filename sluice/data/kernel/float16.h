// bf16 and f16 <-> f32, one number at a time. Rounds to nearest, ties to even; infinities,
// denormals and signed zeros are kept; a NaN stays a NaN of the same sign with its upper payload,
// made quiet. Integer arithmetic rather than the CPU's own instructions: those differ between CPUs
// (AVX512-BF16 drops denormals), and this vectorises. The few floating-point steps never meet an
// f32 denormal that matters, so a process that flushes denormals gets the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include <sluice/data/kernel/level.h>

namespace sluice::kernel {

SLUICE_KERNEL constexpr float f32FromBf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16U;
  const bool isNan = (bits & 0x7fffffffU) > 0x7f800000U;
  return std::bit_cast<float>(isNan ? bits | 0x00400000U : bits);
}

SLUICE_KERNEL constexpr uint16_t bf16FromF32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool isNan = (bits & 0x7fffffffU) > 0x7f800000U;
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
  const uint32_t quiet = (bits >> 16U) | 0x0040U;
  return static_cast<uint16_t>(isNan ? quiet : rounded);
}

SLUICE_KERNEL constexpr float f32FromF16(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16U;
  const uint32_t magnitude = half & 0x7fffU;
  const uint32_t normal = (magnitude << 13U) + (112U << 23U);
  const uint32_t quiet = magnitude > 0x7c00U ? 0x00400000U : 0U;
  const uint32_t infinite = ((magnitude << 13U) + (224U << 23U)) | quiet;
  // A denormal counts units of 2^-24, and f32 holds every such count as a normal number.
  const auto denormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
  const uint32_t finite = magnitude < 0x0400U ? denormal : normal;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00U ? infinite : finite));
}

SLUICE_KERNEL constexpr uint16_t f16FromF32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16U) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  const uint32_t normal = (magnitude - (112U << 23U) + 0x0fffU + ((magnitude >> 13U) & 1U)) >> 13U;
  // The last place of 0.5 is 2^-24, f16's smallest step: the addition does the rounding.
  const uint32_t denormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
                            std::bit_cast<uint32_t>(0.5F);
  const uint32_t nan = 0x7e00U | ((magnitude >> 13U) & 0x03ffU);
  uint32_t result = magnitude < 0x38800000U ? denormal : normal;  // below 2^-14
  result = magnitude >= 0x477ff000U ? 0x7c00U : result;  // 65520 and more round to infinity
  result = magnitude > 0x7f800000U ? nan : result;
  return static_cast<uint16_t>(sign | result);
}

}  // namespace sluice::kernel
