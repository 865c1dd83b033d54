// The purpose that a connection claims, in the 16 bytes that the handshake (or the TLS identity)
// protects.
#pragma once

#include <optional>

#include <sluice/base/ids.h>
#include <sluice/secret/handshake.h>
#include <sluice/transport/wire/header.h>

namespace sluice::fabric {

struct StreamClaim {
  Epoch epoch{};
  Rank source{};
  Rank destination{};
  wire::Lane lane = wire::Lane::kBulk;

  secret::Claim toBytes() const;
  static std::optional<StreamClaim> fromBytes(
      const secret::Claim& bytes);  // empty: no such lane, or not ours
  friend bool operator==(const StreamClaim&, const StreamClaim&) = default;
};

}  // namespace sluice::fabric
