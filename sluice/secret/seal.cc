#include <sluice/secret/seal.h>

#include <array>
#include <cstring>

#include <sluice/secret/sodium.h>

namespace sluice::secret {
namespace {

static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == kKeyBytes);
static_assert(crypto_aead_xchacha20poly1305_ietf_ABYTES == kSealBytes);
using Nonce = std::array<unsigned char, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES>;

Nonce nonceOf(uint64_t count) {
  Nonce nonce{};
  for (size_t i = 0; i < sizeof count; ++i) nonce[i] = static_cast<unsigned char>(count >> (8 * i));
  return nonce;
}

}  // namespace

void Sealer::seal(std::span<const std::byte> plain, std::span<const std::byte> label,
                  std::string& out) {
  startSodium();
  // The nonce is a count, which never repeats under one key. As both ends count for themselves,
  // a message that was lost, repeated or swapped on its way does not open.
  const Nonce nonce = nonceOf(count_++);
  const size_t at = out.size();
  out.resize(at + plain.size() + kSealBytes);
  crypto_aead_xchacha20poly1305_ietf_encrypt(
      reinterpret_cast<unsigned char*>(out.data()) + at, nullptr, raw(plain), plain.size(),
      raw(label), label.size(), nullptr, nonce.data(), raw(key_.bytes()));
}

Status Opener::open(std::span<const std::byte> sealed, std::span<const std::byte> label,
                    std::string& out) {
  startSodium();
  if (sealed.size() < kSealBytes) return {Code::kDataLoss, "a sealed message is too short"};
  const Nonce nonce = nonceOf(count_++);
  const size_t at = out.size();
  out.resize(at + sealed.size() - kSealBytes);
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(
          reinterpret_cast<unsigned char*>(out.data()) + at, nullptr, nullptr, raw(sealed),
          sealed.size(), raw(label), label.size(), nonce.data(), raw(key_.bytes())) != 0) {
    // Nothing of a message that fails its check stays in `out`. The counter has moved on all
    // the same, since an error is final.
    out.resize(at);
    return {Code::kDataLoss, "a sealed message was changed on its way"};
  }
  return base::ok();
}

}  // namespace sluice::secret
