#include <sluice/transport/wire/payload_check.h>

#include <openssl/evp.h>
#include <sodium.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include <sluice/base/check.h>
#include <sluice/transport/wire/crc32c.h>

namespace sluice::wire {
namespace {

constexpr std::string_view kTagKeyLabel = "sluice fabric payload tag";
constexpr size_t kNonceBytes = 12;

uint32_t crcOfSequence(uint64_t sequence) {
  return crc32c(std::as_bytes(std::span(&sequence, 1)));
}

}  // namespace

std::string_view name(PayloadCheckKind kind) {
  switch (kind) {
    case PayloadCheckKind::kNone: return "nothing";
    case PayloadCheckKind::kCrc32c: return "checksum";
    case PayloadCheckKind::kTag: return "tag";
  }
  return "?";
}

void PayloadCheck::FreeCipher::operator()(EVP_CIPHER_CTX* cipher) const {
  EVP_CIPHER_CTX_free(cipher);
}

Status PayloadCheck::checkTags() {
  const std::unique_ptr<EVP_CIPHER_CTX, FreeCipher> cipher(EVP_CIPHER_CTX_new());
  if (cipher != nullptr &&
      EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, nullptr, nullptr) == 1)
    return base::ok();
  return {Code::kUnavailable,
          "OpenSSL has no AES-256-GCM here: look at OPENSSL_CONF and openssl.cnf"};
}

PayloadCheck::PayloadCheck(PayloadCheckKind kind, const secret::Key& sessionKey) : kind_(kind) {
  if (kind_ != PayloadCheckKind::kTag) return;
  // Headers and payloads are authenticated by different algorithms, and one key must not serve
  // two of them: the label derives a second key from the first. The cipher keeps it, so each
  // payload sets only its nonce.
  secret::Key key;
  const auto raw = [](auto bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); };
  crypto_generichash(
      raw(key.mutableBytes()), key.bytes().size(),
      reinterpret_cast<const unsigned char*>(kTagKeyLabel.data()), kTagKeyLabel.size(),
      reinterpret_cast<const unsigned char*>(sessionKey.bytes().data()), sessionKey.bytes().size());
  cipher_.reset(EVP_CIPHER_CTX_new());
  SLUICE_CHECK(cipher_ != nullptr && EVP_EncryptInit_ex(cipher_.get(), EVP_aes_256_gcm(), nullptr,
                                                        raw(key.mutableBytes()), nullptr) == 1);
}

size_t PayloadCheck::trailerBytes(uint64_t length) const {
  if (length == 0) return 0;
  switch (kind_) {
    case PayloadCheckKind::kNone: return 0;
    case PayloadCheckKind::kCrc32c: return sizeof crc_;
    case PayloadCheckKind::kTag: return kLargestTrailerBytes;
  }
  return 0;
}

void PayloadCheck::begin(uint64_t sequence) {
  if (kind_ == PayloadCheckKind::kCrc32c) crc_ = crcOfSequence(sequence);
  if (kind_ != PayloadCheckKind::kTag) return;
  // The key is of one direction of one connection, in which a sequence comes once.
  // A nonce that is used twice under one key would let a forger compute the key. The sequence
  // of a message is a nonce without a random number: it never repeats within this direction of
  // this connection, and the key is of no other.
  std::array<unsigned char, kNonceBytes> nonce{};
  std::memcpy(nonce.data(), &sequence, sizeof sequence);
  SLUICE_CHECK(EVP_EncryptInit_ex(cipher_.get(), nullptr, nullptr, nullptr, nonce.data()) == 1);
}

void PayloadCheck::add(std::span<const std::byte> bytes) {
  if (kind_ == PayloadCheckKind::kCrc32c) crc_ = crc32c(bytes, crc_);
  if (kind_ != PayloadCheckKind::kTag) return;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<size_t>(bytes.size(), INT_MAX / 2));
    int ignored = 0;
    // Without an output buffer, GCM only authenticates.
    SLUICE_CHECK(EVP_EncryptUpdate(cipher_.get(), nullptr, &ignored,
                                   reinterpret_cast<const unsigned char*>(part.data()),
                                   static_cast<int>(part.size())) == 1);
    bytes = bytes.subspan(part.size());
  }
}

PayloadCheck::Trailer PayloadCheck::end() {
  Trailer trailer{};
  if (kind_ == PayloadCheckKind::kCrc32c) std::memcpy(trailer.data(), &crc_, sizeof crc_);
  if (kind_ == PayloadCheckKind::kTag) {
    int none = 0;
    unsigned char nothing = 0;
    SLUICE_CHECK(EVP_EncryptFinal_ex(cipher_.get(), &nothing, &none) == 1 &&
                 EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_AEAD_GET_TAG, kLargestTrailerBytes,
                                     trailer.data()) == 1);
  }
  return trailer;
}

bool PayloadCheck::endsWith(std::span<const std::byte> trailer) {
  // The comparison takes the same time wherever the first difference lies, so that a forger
  // does not learn a tag byte by byte.
  const Trailer expected = end();
  return sodium_memcmp(expected.data(), trailer.data(),
                       std::min(trailer.size(), expected.size())) == 0;
}

uint32_t payloadCrc32c(uint64_t sequence, std::span<const std::byte> payload) {
  return crc32c(payload, crcOfSequence(sequence));
}

}  // namespace sluice::wire
