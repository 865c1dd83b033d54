// How many bytes a fabric leaves with the kernel unsent, beyond those on their way. No message can
// overtake them, so all connections of a rank share them.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sluice::fabric {

inline constexpr size_t kUnsentBytes = size_t{384} << 10;       // of all connections together
inline constexpr size_t kMostUnsentBytes = size_t{128} << 10;   // of one: enough to stay busy
inline constexpr size_t kFewestUnsentBytes = size_t{16} << 10;  // of one: a few packets

// Returns the limit for each connection of a rank with so many peers (TCP_NOTSENT_LOWAT).
constexpr size_t unsentBytesPerConnection(size_t peers) {
  return std::clamp(kUnsentBytes / std::max<size_t>(peers, 1), kFewestUnsentBytes,
                    kMostUnsentBytes);
}

}  // namespace sluice::fabric
