#include <sluice/secret/sealed_note.h>

#include <span>

#include <sluice/secret/sodium.h>

namespace sluice::secret {
namespace {

constexpr size_t kNoteNonceBytes = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr size_t kNoteTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
static_assert(kSealedNoteOverheadBytes == kNoteNonceBytes + kNoteTagBytes);

const unsigned char* rawText(std::string_view text) {
  return raw(std::as_bytes(std::span(text)));
}
unsigned char* rawText(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

}  // namespace

std::string sealNote(const Key& key, std::string_view note, std::string_view label) {
  startSodium();
  std::string sealed(note.size() + kSealedNoteOverheadBytes, '\0');
  // Writer and reader of a note share no count, so the nonce is random and travels in front. It
  // is so long that it does not repeat by chance.
  randombytes_buf(sealed.data(), kNoteNonceBytes);
  crypto_aead_xchacha20poly1305_ietf_encrypt(
      rawText(sealed) + kNoteNonceBytes, nullptr, rawText(note), note.size(), rawText(label),
      label.size(), nullptr, rawText(sealed), raw(key.bytes()));
  return sealed;
}

Result<std::string> openNote(const Key& key, std::string_view sealed, std::string_view label) {
  startSodium();
  if (sealed.size() < kSealedNoteOverheadBytes)
    return Status(Code::kDataLoss, "a sealed note is too short");
  const std::string_view body = sealed.substr(kNoteNonceBytes);
  std::string note(body.size() - kNoteTagBytes, '\0');
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(rawText(note), nullptr, nullptr, rawText(body),
                                                 body.size(), rawText(label), label.size(),
                                                 rawText(sealed), raw(key.bytes())) != 0) {
    return Status(Code::kDataLoss,
                  "a sealed note was made with another key, for another place, or was changed");
  }
  return note;
}

}  // namespace sluice::secret
