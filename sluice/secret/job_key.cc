#include <sluice/secret/job_key.h>

#include <sluice/base/text.h>
#include <sluice/secret/sodium.h>

namespace sluice::secret {
namespace {

constexpr char kContext[crypto_kdf_CONTEXTBYTES + 1] = "sluice 1";
constexpr std::string_view kJobLabel = "sluice job";
static_assert(crypto_kdf_KEYBYTES == kKeyBytes);

}  // namespace

std::string_view name(Purpose purpose) {
  switch (purpose) {
    case Purpose::kRendezvous: return "rendezvous";
    case Purpose::kFabric: return "fabric";
    case Purpose::kTlsPsk: return "tls psk";
    case Purpose::kWireHeader: return "wire header";
    case Purpose::kStoreNote: return "store note";
    case Purpose::kMembership: return "membership";
  }
  return "?";
}

JobNonce randomNonce() {
  JobNonce nonce;
  fillRandom(nonce);
  return nonce;
}

JobKey JobKey::random() {
  JobKey key;
  key.key_ = Key::random();
  key.isSecret_ = true;
  return key;
}

Result<JobKey> JobKey::parse(std::string_view hex) {
  const std::string_view digits = base::trim(hex);
  JobKey key;
  size_t parsed = 0;
  const bool isHex = digits.size() == 2 * kKeyBytes &&
                     sodium_hex2bin(raw(key.key_.mutableBytes()), kKeyBytes, digits.data(),
                                    digits.size(), nullptr, &parsed, nullptr) == 0 &&
                     parsed == kKeyBytes;
  if (!isHex) {
    return Status(Code::kInvalidArgument,
                  "a job key is 64 hexadecimal digits; make one with: sluice key new -o job.key");
  }
  if (key.key_ == Key())
    return Status(Code::kInvalidArgument,
                  "a job key of zeros is not a secret; make one with: sluice key new -o job.key");
  key.isSecret_ = true;
  return key;
}

std::string JobKey::toHex() const {
  std::string hex(2 * kKeyBytes + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), raw(key_.bytes()), kKeyBytes);
  hex.pop_back();  // sodium's terminating zero
  return hex;
}

JobKey JobKey::forJob(const JobNonce& nonce) const {
  startSodium();
  // With the nonce every job has keys of its own, even if all jobs of a user share a key file.
  // What was recorded in one job is of no use in another.
  crypto_generichash_state hash;
  crypto_generichash_init(&hash, raw(key_.bytes()), kKeyBytes, kKeyBytes);
  crypto_generichash_update(&hash, raw(std::as_bytes(std::span(kJobLabel))), kJobLabel.size());
  crypto_generichash_update(&hash, raw(std::span(nonce)), nonce.size());
  JobKey key;
  crypto_generichash_final(&hash, raw(key.key_.mutableBytes()), kKeyBytes);
  // The state of the hash still contains the key.
  sodium_memzero(&hash, sizeof hash);
  key.isSecret_ = isSecret_;
  return key;
}

Key JobKey::derive(Purpose purpose) const {
  startSodium();
  Key derived;
  SLUICE_CHECK(crypto_kdf_derive_from_key(raw(derived.mutableBytes()), kKeyBytes,
                                          static_cast<uint64_t>(purpose), kContext,
                                          raw(key_.bytes())) == 0);
  return derived;
}

}  // namespace sluice::secret
