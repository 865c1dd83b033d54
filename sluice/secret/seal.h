// Messages under a session key: nobody on the way can read, change, repeat, drop or reorder one
// unnoticed. XChaCha20-Poly1305 with a counter as nonce, which is safe since each session key
// serves one direction of one connection (handshake.h). One owner; not shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <sluice/base/status.h>
#include <sluice/secret/key.h>

namespace sluice::secret {

inline constexpr size_t kSealBytes = 16;  // a sealed message is longer by this

class Sealer final {
 public:
  explicit Sealer(const Key& key) : key_(key) {}

  // Appends the sealed `plain` to `out`. `label` travels elsewhere in the clear, and is protected
  // with it.
  void seal(std::span<const std::byte> plain, std::span<const std::byte> label, std::string& out);

 private:
  Key key_;
  uint64_t count_ = 0;
};

class Opener final {
 public:
  explicit Opener(const Key& key) : key_(key) {}

  // Appends the message that was sealed to `out`. An error is final.
  Status open(std::span<const std::byte> sealed, std::span<const std::byte> label,
              std::string& out);

 private:
  Key key_;
  uint64_t count_ = 0;
};

}  // namespace sluice::secret
