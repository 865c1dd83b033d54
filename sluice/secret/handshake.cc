#include <sluice/secret/handshake.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sluice/secret/sodium.h>

namespace sluice::secret {
namespace {

// The hello: 0 magic, 8 version, 10 purpose, 12 zero, 16 claim, 32 nonce, 64 proof. Numbers are
// little-endian.
constexpr std::string_view kMagic = "sluicehs";
constexpr uint16_t kVersion = 2;
constexpr size_t kVersionAt = 8;
constexpr size_t kPurposeAt = 10;
constexpr size_t kZeroAt = 12;
constexpr size_t kClaimAt = 16;
constexpr size_t kNonceAt = 32;

void put16(std::span<std::byte> to, uint16_t value) {
  to[0] = static_cast<std::byte>(value & 0xff);
  to[1] = static_cast<std::byte>(value >> 8);
}
uint16_t get16(std::span<const std::byte> from) {
  return static_cast<uint16_t>(std::to_integer<uint16_t>(from[0]) |
                               std::to_integer<uint16_t>(from[1]) << 8);
}

Status wrongKey() {
  return {Code::kPermissionDenied, "it does not hold the same job key (SLUICE_JOB_KEY_FILE)"};
}

}  // namespace

Handshake Handshake::client(const JobKey& key, Purpose purpose, const Claim& claim) {
  Handshake shake(Role::kClient, State::kAwaitAnswer, key.derive(purpose), purpose);
  const std::span hello = std::span(shake.transcript_).first<kOpeningBytes>();
  std::ranges::copy(std::as_bytes(std::span(kMagic)), hello.begin());
  put16(hello.subspan(kVersionAt), kVersion);
  put16(hello.subspan(kPurposeAt), static_cast<uint16_t>(purpose));
  std::ranges::copy(claim, hello.begin() + kClaimAt);
  fillRandom(hello.subspan(kNonceAt));
  std::ranges::copy(hello, shake.outgoing_.begin());
  std::ranges::copy(shake.hashAs("hello proof").bytes(), shake.outgoing_.begin() + kOpeningBytes);
  shake.outgoingBytes_ = kHelloBytes;
  return shake;
}

Handshake Handshake::server(const JobKey& key, Purpose purpose) {
  return {Role::kServer, State::kAwaitHello, key.derive(purpose), purpose};
}

std::span<const std::byte> Handshake::takeToSend() {
  return std::span(outgoing_).first(std::exchange(outgoingBytes_, 0));
}

size_t Handshake::expectedBytes() const {
  switch (state_) {
    case State::kAwaitHello:
      return kOpeningBytes;  // first, to name another version, whatever its length
    case State::kAwaitHelloProof:
    case State::kAwaitProof: return kProofBytes;
    case State::kAwaitAnswer: return kAnswerBytes;
    case State::kDone:
    case State::kFailed: return 0;
  }
  return 0;
}

Status Handshake::received(std::span<const std::byte> message) {
  SLUICE_CHECK(expectedBytes() > 0 && message.size() == expectedBytes(), message.size(),
               expectedBytes());
  Status status;
  switch (state_) {
    case State::kAwaitHello: status = receivedOpening(message); break;
    case State::kAwaitHelloProof: status = receivedHelloProof(message); break;
    case State::kAwaitAnswer: status = receivedAnswer(message); break;
    case State::kAwaitProof: status = receivedProof(message); break;
    case State::kDone:
    case State::kFailed: break;
  }
  if (!status.isOk()) {
    state_ = State::kFailed;
    // A server's answer is sent even after a failure: by it a client with another key learns
    // that the keys differ. A client has nothing more to say.
    if (role_ == Role::kClient) outgoingBytes_ = 0;
  }
  return status;
}

Status Handshake::receivedOpening(std::span<const std::byte> message) {
  const auto magic = std::as_bytes(std::span(kMagic));
  // These checks come before any proof, on bytes of a stranger. They tell apart the mistakes
  // that people make: another program, another version, another port.
  if (!std::ranges::equal(message.first(kMagic.size()), magic)) {
    return {Code::kDataLoss,
            "it sent something else than a handshake of sluice; check the address"};
  }
  if (const uint16_t version = get16(message.subspan(kVersionAt)); version != kVersion) {
    return {Code::kRefused, fmt::format("it uses version {} of the handshake, and this side "
                                        "version {}; run the same sluice everywhere",
                                        version, kVersion)};
  }
  if (const uint16_t purpose = get16(message.subspan(kPurposeAt));
      purpose != static_cast<uint16_t>(purpose_)) {
    return {Code::kRefused, fmt::format("it asks for purpose {}, but this port has purpose {} "
                                        "({}); check the address that it was given",
                                        purpose, static_cast<uint16_t>(purpose_), name(purpose_))};
  }
  if (std::ranges::any_of(message.subspan(kZeroAt, kClaimAt - kZeroAt),
                          [](std::byte b) { return b != std::byte{0}; })) {
    return {Code::kDataLoss,
            "its handshake has bits set that must be zero; run the same sluice everywhere"};
  }
  std::ranges::copy(message, transcript_.begin());
  state_ = State::kAwaitHelloProof;
  return base::ok();
}

Status Handshake::receivedHelloProof(std::span<const std::byte> message) {
  // The answer is made whether or not the hello was right: a client with another key learns
  // from it that the keys differ, and an attacker learns nothing, as the answer proves only our
  // key over fresh nonces.
  const bool isOurs = Key(message.first<kProofBytes>()) == hashAs("hello proof");
  const std::span nonce = std::span(transcript_).subspan(kOpeningBytes);
  fillRandom(nonce);
  std::ranges::copy(nonce, outgoing_.begin());
  std::ranges::copy(hashAs("server proof").bytes(), outgoing_.begin() + kNonceBytes);
  outgoingBytes_ = kAnswerBytes;
  if (!isOurs) return wrongKey();
  state_ = State::kAwaitProof;
  return base::ok();
}

Status Handshake::receivedAnswer(std::span<const std::byte> message) {
  std::ranges::copy(message.first(kNonceBytes), transcript_.begin() + kOpeningBytes);
  // The server proves itself first. Only then does the client give its proof, so nobody without
  // the key can collect proofs by listening on a port.
  if (Key(message.subspan<kNonceBytes, kProofBytes>()) != hashAs("server proof")) return wrongKey();
  std::ranges::copy(hashAs("client proof").bytes(), outgoing_.begin());
  outgoingBytes_ = kProofBytes;
  state_ = State::kDone;
  return base::ok();
}

Status Handshake::receivedProof(std::span<const std::byte> message) {
  if (Key(message.first<kProofBytes>()) != hashAs("client proof")) return wrongKey();
  state_ = State::kDone;
  return base::ok();
}

Claim Handshake::claim() const {
  SLUICE_CHECK(done());
  Claim claim;
  std::ranges::copy_n(transcript_.begin() + kClaimAt, claim.size(), claim.begin());
  return claim;
}

SessionKeys Handshake::sessionKeys() const {
  SLUICE_CHECK(done());
  // Each direction has its own key. Both ends count their messages from zero, and under one key
  // two messages would have the same nonce.
  Key toServer = hashAs("to server");
  Key toClient = hashAs("to client");
  if (role_ == Role::kClient) return {.send = toServer, .receive = toClient};
  return {.send = toClient, .receive = toServer};
}

// Labels differ in length, so each is preceded by its length: no two inputs of the hash are ever
// the same.
Key Handshake::hashAs(std::string_view label) const {
  startSodium();
  crypto_generichash_state hash;
  crypto_generichash_init(&hash, raw(key_.bytes()), kKeyBytes, kKeyBytes);
  const auto length = static_cast<unsigned char>(label.size());
  crypto_generichash_update(&hash, &length, 1);
  crypto_generichash_update(&hash, raw(std::as_bytes(std::span(label))), label.size());
  crypto_generichash_update(&hash, raw(std::span(transcript_)), transcript_.size());
  Key result;
  crypto_generichash_final(&hash, raw(result.mutableBytes()), kKeyBytes);
  sodium_memzero(&hash, sizeof hash);
  return result;
}

}  // namespace sluice::secret
