#include <sluice/transport/fabric/tcp/claim.h>

#include <cstring>

namespace sluice::fabric {
namespace {

// epoch, source, destination, lane as four little-endian words
using Words = std::array<uint32_t, 4>;
static_assert(sizeof(Words) == sizeof(secret::Claim));

}  // namespace

// The claim is covered by the handshake's proof (or is the TLS identity), so these bytes are as
// trustworthy as the key itself. Words are copied as they lie in memory: header.cc asserts that
// the machine is little-endian.
secret::Claim StreamClaim::toBytes() const {
  const Words words{index(epoch), index(source), index(destination), static_cast<uint32_t>(lane)};
  secret::Claim bytes{};
  std::memcpy(bytes.data(), words.data(), sizeof words);
  return bytes;
}

std::optional<StreamClaim> StreamClaim::fromBytes(const secret::Claim& bytes) {
  Words words{};
  std::memcpy(words.data(), bytes.data(), sizeof words);
  if (words[3] >= wire::kLanes) return std::nullopt;
  return StreamClaim{Epoch{words[0]}, Rank{words[1]}, Rank{words[2]},
                     static_cast<wire::Lane>(words[3])};
}

}  // namespace sluice::fabric
