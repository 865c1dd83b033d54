// Sums and means over ranks, in rank order, the same bits on every CPU and in every build. Pure
// functions on bytes at any alignment; any thread; spans of one call must not overlap.
//
// The accumulator of f32, bf16 and f16 is f32, that of f64 is f64, so a 16-bit sum is rounded once,
// by narrow().
//
// The mean: every contribution is multiplied by 1/N, rounded to the accumulator's type, *before* it
// is added. That is what PyTorch's DDP does (its reducer multiplies each gradient by 1/world_size
// while copying it into the bucket, then all-reduces), so a sum of two ranks has DDP's bits even
// for denormals and near overflow, where dividing the sum would not. A NaN is NaN on every CPU, but
// which NaN is the CPU's choice.
#pragma once

#include <cstddef>
#include <span>

#include <sluice/base/status.h>
#include <sluice/data/kernel/level.h>
#include <sluice/model.h>

namespace sluice::kernel {

// Refuses, in one line, the types that hold no numbers.
Status checkArithmetic(DType dtype);

// Returns the type in which sums of `dtype` are taken. REQUIRES: checkArithmetic(dtype)
DType accumulatorOf(DType dtype);

// Returns the scale that turns a sum over `ranks` ranks into their mean. REQUIRES: ranks > 0
double meanScale(size_t ranks);

// accumulator = scale * contribution: the first rank's part. Not an addition to zero, which would
// lose the sign of a zero. REQUIRES: accumulator.size() / sizeOf(accumulatorOf(dtype)) ==
// contribution.size() / sizeOf(dtype)
void setScaled(DType dtype, std::span<std::byte> accumulator,
               std::span<const std::byte> contribution, double scale, Level level = bestLevel());

// accumulator += scale * contribution: every further rank's part, in rank order.
void addScaled(DType dtype, std::span<std::byte> accumulator,
               std::span<const std::byte> contribution, double scale, Level level = bestLevel());

// Gives the bits of setScaled() of the first contribution and addScaled() of the others in turn,
// but keeps the accumulator in the cache. contributions[r] is rank r's part. REQUIRES: at least one
// contribution, all of the same size
void sumInRankOrder(DType dtype, std::span<std::byte> accumulator,
                    std::span<const std::span<const std::byte>> contributions, double scale,
                    Level level = bestLevel());

// accumulator = elements, exactly.
void widen(DType dtype, std::span<std::byte> accumulator, std::span<const std::byte> elements,
           Level level = bestLevel());

// elements = accumulator, rounded to nearest, ties to even.
void narrow(DType dtype, std::span<std::byte> elements, std::span<const std::byte> accumulator,
            Level level = bestLevel());

}  // namespace sluice::kernel
