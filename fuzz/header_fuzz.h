// Shared by the two header targets: a fixed key and stream, and the check of every input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <variant>

#include <sluice/transport/wire/header.h>

namespace sluice::fuzz {

inline secret::Key fixedKey() {
  secret::Key key;
  std::ranges::fill(key.mutableBytes(), std::byte{7});
  return key;
}

// The stream that the committed corpus belongs to.
inline constexpr wire::Expectations kExpected{.epoch = Epoch{4},
                                              .source = Rank{2},
                                              .destination = Rank{3},
                                              .lane = wire::Lane::kUrgent,
                                              .sequence = 9};

// Opens `bytes`. An accepted header must have all expected fields, and must come out the same when
// sealed again.
inline void mustHold(const wire::HeaderBytes& bytes, const secret::Key& key) {
  const auto opened = wire::open(bytes, key, kExpected);
  if (const auto* drop = std::get_if<wire::Drop>(&opened)) {
    if (!wire::endsStream(*drop) && wire::lengthToSkip(bytes) > wire::kMaxLength) std::abort();
    return;
  }
  const auto& header = std::get<wire::Header>(opened);
  if (header.epoch != kExpected.epoch || header.source != kExpected.source ||
      header.destination != kExpected.destination || header.lane != kExpected.lane ||
      header.sequence != kExpected.sequence || header.length > wire::kMaxLength) {
    std::abort();
  }
  if (sluice::name(header.stage) == "?" || sluice::name(header.dtype) == "?") std::abort();
  if (wire::seal(header, key) != bytes) std::abort();
}

}  // namespace sluice::fuzz
