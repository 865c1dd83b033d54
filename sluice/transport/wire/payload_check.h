// The trailer of a payload, by which its receiver notices changed bytes: nothing, a checksum
// against accidents, or a tag that only a holder of the connection's key can make. Computed piece
// by piece, in the order of the bytes. One owner; not shared.
//
// Checksum and tag include the message's sequence, which its sealed header has too, so a payload
// fits no other header. An empty payload has no trailer: its header says all.
#pragma once

#include <openssl/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <sluice/base/status.h>
#include <sluice/secret/key.h>

namespace sluice::wire {

enum class PayloadCheckKind : uint8_t {
  kNone,
  kCrc32c,  // 4 bytes
  kTag,  // 16 bytes: AES-256-GMAC under a key derived from the connection's key of this direction
};
std::string_view name(PayloadCheckKind kind);  // "checksum"

class PayloadCheck final {
 public:
  static constexpr size_t kLargestTrailerBytes = 16;
  using Trailer = std::array<std::byte, kLargestTrailerBytes>;  // the first trailerBytes() count

  // Returns an error if OpenSSL cannot make tags here, as with a broken OPENSSL_CONF. Call it
  // before the first kTag.
  static Status checkTags();

  PayloadCheck() = default;  // kNone
  // `sessionKey` belongs to the direction in which the payloads go. REQUIRES: no other PayloadCheck
  // of this direction.
  PayloadCheck(PayloadCheckKind kind, const secret::Key& sessionKey);

  PayloadCheckKind kind() const { return kind_; }
  // Returns the number of bytes that follow a payload of `length` bytes.
  size_t trailerBytes(uint64_t length) const;

  // For each payload that has a trailer, call begin(), add() for all of it, then end() or
  // endsWith().
  void begin(uint64_t sequence);
  void add(std::span<const std::byte> bytes);
  Trailer end();
  // True iff `trailer` is the one that end() would give. REQUIRES: trailer.size() == trailerBytes()
  bool endsWith(std::span<const std::byte> trailer);

 private:
  struct FreeCipher {
    void operator()(EVP_CIPHER_CTX* cipher) const;
  };

  PayloadCheckKind kind_ = PayloadCheckKind::kNone;
  uint32_t crc_ = 0;
  std::unique_ptr<EVP_CIPHER_CTX, FreeCipher> cipher_;
};

// Returns the checksum of a whole payload.
uint32_t payloadCrc32c(uint64_t sequence, std::span<const std::byte> payload);

}  // namespace sluice::wire
