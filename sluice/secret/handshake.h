// Two ends of a connection prove to each other that they hold the same key, before either believes
// anything else the other says. It has no socket and no clock: the owner moves the bytes. One
// owner; not shared.
//
//   hello   client -> server   magic, version, purpose, claim, the client's fresh nonce, and a
//                              proof of them
//   answer  server -> client   the server's fresh nonce, and its proof
//   proof   client -> server   the client's proof
//
// A proof is a keyed hash over who speaks (client or server), the hello and both nonces. Nonces are
// fresh, so a recorded conversation proves nothing later; the role is in the hash, so an end cannot
// be answered with its own proof. All messages are of fixed size, so no length of a stranger's is
// ever believed.
//
// The proof in the hello lets a server in a crowd of strangers tell from the first message whom to
// keep. It covers no nonce of the server, so a recorded hello passes it too: that gains a place
// among those who wait, and nothing else.
//
// Both ends then share a pair of session keys, one for each direction, that no other connection
// has.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <sluice/base/status.h>
#include <sluice/secret/job_key.h>
#include <sluice/secret/key.h>

namespace sluice::secret {

// The client's words about itself (its rank, whom it wants), in 16 bytes that the handshake does
// not look into but protects.
using Claim = std::array<std::byte, 16>;

struct SessionKeys {
  Key send;
  Key receive;
};

class Handshake final {
 public:
  static constexpr size_t kHelloBytes = 96;
  static constexpr size_t kAnswerBytes = 64;
  static constexpr size_t kProofBytes = 32;
  static constexpr size_t kLargestMessageBytes = 96;

  static Handshake client(const JobKey& key, Purpose purpose, const Claim& claim);
  static Handshake server(const JobKey& key, Purpose purpose);

  // Returns the message to send now, or nothing. Each message is handed out once; it is valid until
  // the next call.
  std::span<const std::byte> takeToSend();

  // Returns the length of the message, or of the part of the hello, that comes next; 0 when no more
  // comes.
  size_t expectedBytes() const;

  // Takes in a received message. An error is final: close the connection. After a hello of another
  // key there is still an answer to send first, from which the client learns that the keys differ.
  // REQUIRES: message.size() == expectedBytes() > 0
  Status received(std::span<const std::byte> message);

  // True iff the client's hello was made with the key, or is a recording of such a hello. For a
  // server only.
  bool heardHello() const { return state_ == State::kAwaitProof || state_ == State::kDone; }

  // True iff the other end has proved that it holds the key. A client may still have its proof to
  // send.
  bool done() const { return state_ == State::kDone; }

  // REQUIRES: done()
  Claim claim() const;
  SessionKeys sessionKeys() const;

 private:
  enum class Role { kClient, kServer };
  enum class State { kAwaitHello, kAwaitHelloProof, kAwaitAnswer, kAwaitProof, kDone, kFailed };
  static constexpr size_t kNonceBytes = 32;
  static constexpr size_t kOpeningBytes = kHelloBytes - kProofBytes;  // the hello without its proof

  Handshake(Role role, State state, const Key& key, Purpose purpose)
      : role_(role), state_(state), purpose_(purpose), key_(key) {}

  Status receivedOpening(std::span<const std::byte> message);
  Status receivedHelloProof(std::span<const std::byte> message);
  Status receivedAnswer(std::span<const std::byte> message);
  Status receivedProof(std::span<const std::byte> message);
  Key hashAs(std::string_view label) const;

  Role role_;
  State state_;
  Purpose purpose_;
  Key key_;
  // The hello and the server's nonce (zeros until it is drawn): all bytes that are not a proof. The
  // proofs and session keys depend on them.
  std::array<std::byte, kOpeningBytes + kNonceBytes> transcript_{};
  std::array<std::byte, kLargestMessageBytes> outgoing_{};
  size_t outgoingBytes_ = 0;
};

}  // namespace sluice::secret
