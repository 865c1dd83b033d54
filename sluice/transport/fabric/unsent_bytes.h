// How many bytes a fabric leaves with the kernel unsent, beyond those on their way. No message can
// overtake them, so all connections of a rank share them.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sluice::fabric {

inline constexpr size_t kUnsentBytes = size_t{384} << 10;       // of all connections together
inline constexpr size_t kMostUnsentBytes = size_t{128} << 10;   // of one: enough to stay busy
inline constexpr size_t kFewestUnsentBytes = size_t{16} << 10;  // of one: a few packets

inline constexpr size_t kFewestShrunkBytes = size_t{4} << 10;  // of one: a packet or two

// Returns the limit for each connection of a rank with so many peers (TCP_NOTSENT_LOWAT). `shrink`
// divides it as a measurement divides messages (--shrink): otherwise more of them could not be
// overtaken than at full size.
constexpr size_t unsentBytesPerConnection(size_t peers, size_t shrink = 1) {
  const size_t whole =
      std::clamp(kUnsentBytes / std::max<size_t>(peers, 1), kFewestUnsentBytes, kMostUnsentBytes);
  return shrink <= 1 ? whole : std::max(whole / shrink, kFewestShrunkBytes);
}

}  // namespace sluice::fabric
