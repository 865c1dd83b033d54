// Ids (sluice/model.h) inside sluice: how they count on and how fmt prints them.
#pragma once

#include <fmt/format.h>

#include <sluice/model.h>

namespace sluice {

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

}  // namespace sluice
