// The claim of a rank in its handshake with rank 0: its rank, and nothing else.
#pragma once

#include <sluice/base/ids.h>
#include <sluice/secret/handshake.h>

namespace sluice::rendezvous {

inline secret::Claim claimOf(Rank rank) {
  secret::Claim claim{};
  for (size_t i = 0; i < 4; ++i) claim[i] = static_cast<std::byte>(index(rank) >> (8 * i) & 0xff);
  return claim;
}

inline Rank rankOf(const secret::Claim& claim) {
  uint32_t rank = 0;
  for (size_t i = 0; i < 4; ++i) rank |= std::to_integer<uint32_t>(claim[i]) << (8 * i);
  return Rank{rank};
}

}  // namespace sluice::rendezvous
