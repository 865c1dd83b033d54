// Draws two models together: the building block of averaging without a sum over all ranks. Results
// have the same bits on every CPU and in every build. Pure functions on bytes at any alignment; any
// thread; spans of one call must not overlap. Each number is calculated in the accumulator's type
// (reduce.h) and rounded once.
#pragma once

#include <cstddef>
#include <span>

#include <sluice/data/kernel/level.h>
#include <sluice/model.h>

namespace sluice::kernel {

// Elastic averaging: with d = alpha * (x - centre), x -= d and centre += d.
// REQUIRES: as many bytes of both; checkArithmetic(dtype)
void drawTogether(DType dtype, std::span<std::byte> centre, std::span<std::byte> x, double alpha,
                  Level level = bestLevel());

// x = keep * x + take * other.
// REQUIRES: as many bytes of both; checkArithmetic(dtype)
void mix(DType dtype, std::span<std::byte> x, std::span<const std::byte> other, double keep,
         double take, Level level = bestLevel());

// x += (to - from) / 2: half of another model's way. The way from `from` to `to` and the way back
// cancel out to the bit, before they are added. REQUIRES: as many bytes of all;
// checkArithmetic(dtype)
void moveHalfway(DType dtype, std::span<std::byte> x, std::span<const std::byte> from,
                 std::span<const std::byte> to, Level level = bestLevel());

}  // namespace sluice::kernel
