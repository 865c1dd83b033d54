// The header in front of every payload, and its form on the wire: fixed size, little-endian,
// versioned, sealed with a key. open() is the only way from bytes to a Header, and it checks every
// field before anybody can use it. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include <sluice/base/ids.h>
#include <sluice/model.h>
#include <sluice/observer.h>
#include <sluice/secret/key.h>
#include <sluice/transport/wire/drop.h>

namespace sluice::wire {

// Streams of messages between two ranks that cannot hold each other up. The values are part of the
// wire format: never renumber.
enum class Lane : uint8_t { kControl = 0, kUrgent = 1, kBulk = 2 };  // most urgent first
inline constexpr size_t kLanes = 3;
std::string_view name(Lane lane);

// The low byte belongs to the fabric, the high byte to the sender: the fabric carries it unread.
enum class Flags : uint16_t {
  kNone = 0,
  kGoodbye = 1 << 0,    // the last message of this lane: its sender closes in good order
  kHeartbeat = 1 << 1,  // only says that the sender lives
  kEncoded = 1 << 2,  // a codec made the payload: its length is not a multiple of the dtype's size
  kTaken = 1 << 3,    // of an engine that acknowledges: all of the lane before `sequence` is taken
  kFree = 0xff00,     // the sender's own bits
};
constexpr Flags operator|(Flags a, Flags b) {
  return static_cast<Flags>(static_cast<uint16_t>(a) | static_cast<uint16_t>(b));
}
constexpr bool has(Flags flags, Flags wanted) {
  return (static_cast<uint16_t>(flags) & static_cast<uint16_t>(wanted)) != 0;
}

struct Header {
  Epoch epoch{};
  Rank source{};
  Rank destination{};
  Lane lane = Lane::kBulk;
  uint64_t sequence = 0;  // counts the messages of one stream from 0
  Step step{};
  TensorId tensor{};
  SliceId slice{};
  Stage stage = Stage::kReady;
  Flags flags = Flags::kNone;
  DType dtype = DType::kBytes;
  uint64_t length = 0;  // bytes of payload that follow

  std::string toString()
      const;  // "epoch 1, 0 -> 3 bulk #7: step 2 tensor 5 slice 17 push f32 40000 B"
  friend bool operator==(const Header&, const Header&) = default;
};

inline constexpr uint16_t kVersion = 2;
inline constexpr uint64_t kMaxLength = uint64_t{1}
                                       << 30;  // a larger tensor travels as several slices
inline constexpr size_t kHeaderBytes = 72;
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

// The values that the next message of a stream must have.
struct Expectations {
  Epoch epoch{};
  Rank source{};
  Rank destination{};
  Lane lane = Lane::kBulk;
  uint64_t sequence = 0;
  uint64_t maxLength = kMaxLength;
};

// `key` is known to the two ends of a stream only (or, where the network is trusted, to the job).
// REQUIRES: header.length <= kMaxLength
HeaderBytes seal(const Header& header, const secret::Key& key);

// Returns the header, or the first reason not to believe it.
std::variant<Header, Drop> open(std::span<const std::byte, kHeaderBytes> bytes,
                                const secret::Key& key, const Expectations& expected);

// Returns the number of bytes that follow a header that open() has dropped. REQUIRES: !endsStream()
// of that Drop.
uint64_t lengthToSkip(std::span<const std::byte, kHeaderBytes> bytes);

}  // namespace sluice::wire
