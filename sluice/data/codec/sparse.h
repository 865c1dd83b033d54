// Encodes a few elements of a long vector as bytes: the distances between their places, and their
// values. If that is not shorter than all elements, all are sent instead. Pure functions, any
// thread.
//
//   sparse   1, count, then for each the distance from the one before (varints), then for each
//            its f32
//   dense    0, then all f32
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::codec {

// True iff the dense form of a vector of `elements` elements is no longer than the sparse form with
// these places.
bool isSentDense(size_t elements, std::span<const uint32_t> places);

// Encodes values[p] for each p of `places`, or all values if isSentDense(). REQUIRES: places
// ascend, and are below values.size(), which is at most 2^32.
std::vector<std::byte> encodeSparse(std::span<const float> values,
                                    std::span<const uint32_t> places);

struct SparseVector {
  std::vector<uint32_t> places;  // ascending
  std::vector<float> values;     // one for each place
};

// Decodes what encodeSparse() wrote for a vector of `elements` elements. Believes nothing in
// `bytes`.
Result<SparseVector> decodeSparse(std::span<const std::byte> bytes, size_t elements);

// Does floats[p] += value * scale, or floats[p] = value, for each element of the vector. `floats`
// are f32 at any alignment, at least as many as the vector was decoded for.
void addScaledSparse(const SparseVector& vector, float scale, std::span<std::byte> floats);
void setSparse(const SparseVector& vector, std::span<std::byte> floats);

// Does sum[p] += value for each element that was sent, and adds its place to `places`. On an error
// neither changes.
Status addSparse(std::span<const std::byte> bytes, std::span<float> sum,
                 std::vector<uint32_t>& places);

}  // namespace sluice::codec
