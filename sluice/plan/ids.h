// The nouns of the project as types, so that a rank cannot be passed where a tensor is meant.
#pragma once

#include <cstdint>
#include <functional>

#include <fmt/format.h>

namespace sluice::plan {

enum class Rank : uint32_t {};      // a process of the job, 0 .. world size - 1
enum class Epoch : uint32_t {};     // the membership: counts up whenever ranks come or go
enum class Step : uint64_t {};      // one training iteration
enum class TensorId : uint32_t {};  // a parameter tensor, numbered in the order of the forward pass
enum class SliceId : uint32_t {};   // a slice of the plan, numbered over all tensors

// The plain number behind an id, for arithmetic, indexing and printing.
constexpr uint32_t index(Rank r) {
  return static_cast<uint32_t>(r);
}
constexpr uint32_t index(Epoch e) {
  return static_cast<uint32_t>(e);
}
constexpr uint64_t index(Step s) {
  return static_cast<uint64_t>(s);
}
constexpr uint32_t index(TensorId t) {
  return static_cast<uint32_t>(t);
}
constexpr uint32_t index(SliceId s) {
  return static_cast<uint32_t>(s);
}

constexpr Step next(Step s) {
  return Step{index(s) + 1};
}

// fmt prints an id as its number.
inline auto format_as(Rank r) {
  return index(r);
}
inline auto format_as(Epoch e) {
  return index(e);
}
inline auto format_as(Step s) {
  return index(s);
}
inline auto format_as(TensorId t) {
  return index(t);
}
inline auto format_as(SliceId s) {
  return index(s);
}

}  // namespace sluice::plan

namespace sluice {
using plan::Epoch;
using plan::Rank;
using plan::SliceId;
using plan::Step;
using plan::TensorId;
}  // namespace sluice
