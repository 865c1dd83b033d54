// The messages that members say to each other beside the steps: about losses, notes, and values that
// all of them gather. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sluice/base/ids.h>
#include <sluice/base/status.h>

namespace sluice::membership {

enum class MemberMessageKind : uint8_t {
  kHello = 0,   // the sender is there; from now on both watch each other
  kLost = 1,    // the sender cannot reach the member `number` any more
  kNote = 2,    // `bytes` under `key`
  kMeet = 3,    // the sender's `bytes` for the meeting `key` of this epoch
  kValue = 4,   // a part of the sender's value for the round `key`
  kResult = 5,  // a part of the values of the round `key`, which the sender has complete
  kHave = 6,    // the sender has the values of the round `key`
};

struct MemberMessage {
  MemberMessageKind kind = MemberMessageKind::kHello;
  Epoch epoch{};        // in which it was said
  std::string key{};    // of a note, a meeting or a round
  uint64_t number = 0;  // of the round within `key`; for kLost, the rank of the lost member
  uint64_t total = 0;   // bytes of the whole value
  uint64_t offset = 0;  // of this part in it
  std::string bytes{};

  friend bool operator==(const MemberMessage&, const MemberMessage&) = default;
};

inline constexpr size_t kLongestKeyBytes = 512;
inline constexpr size_t kPartBytes = size_t{1} << 20;  // a longer value travels in several messages
inline constexpr size_t kLongestNoteBytes = size_t{64} << 10;
inline constexpr size_t kLongestMessageBytes = kPartBytes + kLongestKeyBytes + 64;

std::vector<std::byte> encode(const MemberMessage& message);
// Takes exactly what encode() gives for a message within the limits above.
Result<MemberMessage> decodeMessage(std::span<const std::byte> bytes);

}  // namespace sluice::membership
