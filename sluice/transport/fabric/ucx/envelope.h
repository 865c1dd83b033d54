// The header of an active message: a claim, with which the receiver looks up the header that it
// expects (wire::open() holds the claim against the sealed header), the sealed wire header, and the
// payload's checksum. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include <sluice/transport/wire/header.h>

namespace sluice::fabric::ucx {

struct Claim {
  Rank source{};
  uint64_t sequence = 0;
};

inline constexpr size_t kClaimBytes = sizeof(Rank) + sizeof(uint64_t);
inline constexpr size_t kChecksumAt = kClaimBytes + wire::kHeaderBytes;
inline constexpr size_t kEnvelopeBytes = kChecksumAt + sizeof(uint32_t);
using Envelope = std::array<std::byte, kEnvelopeBytes>;

inline Envelope sealEnvelope(const wire::Header& header, uint32_t checksum,
                             const secret::Key& key) {
  Envelope envelope;
  const wire::HeaderBytes sealed = wire::seal(header, key);
  std::memcpy(envelope.data(), &header.source, sizeof header.source);
  std::memcpy(envelope.data() + sizeof header.source, &header.sequence, sizeof header.sequence);
  std::memcpy(envelope.data() + kClaimBytes, sealed.data(), sealed.size());
  std::memcpy(envelope.data() + kChecksumAt, &checksum, sizeof checksum);
  return envelope;
}

// Returns the claim; empty if the bytes cannot be an envelope at all.
inline std::optional<Claim> readClaim(std::span<const std::byte> bytes) {
  if (bytes.size() != kEnvelopeBytes) return std::nullopt;
  Claim claim;
  std::memcpy(&claim.source, bytes.data(), sizeof claim.source);
  std::memcpy(&claim.sequence, bytes.data() + sizeof claim.source, sizeof claim.sequence);
  return claim;
}

// REQUIRES: readClaim(bytes)
inline std::span<const std::byte, wire::kHeaderBytes> sealedPart(std::span<const std::byte> bytes) {
  return bytes.subspan<kClaimBytes, wire::kHeaderBytes>();
}

// REQUIRES: readClaim(bytes)
inline uint32_t checksumOf(std::span<const std::byte> bytes) {
  uint32_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + kChecksumAt, sizeof checksum);
  return checksum;
}

// The ids of our active messages. Both ends must agree: part of the protocol.
constexpr unsigned dataId(wire::Lane lane) {
  return static_cast<unsigned>(lane);
}
// With this id a receiver says: "All messages of this lane before that number are taken."
constexpr unsigned takenId(wire::Lane lane) {
  return wire::kLanes + static_cast<unsigned>(lane);
}

// "I have given you up": closing an endpoint does not close a connection that the other side uses,
// too.
inline constexpr unsigned kGivenUpId = 2 * wire::kLanes;
inline constexpr wire::Flags kGivenUpFlags = wire::Flags::kTaken | wire::Flags::kGoodbye;

}  // namespace sluice::fabric::ucx
