// The reasons why messages were not let in, and a counter for each. Every reason has a name that
// metrics and logs print.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::wire {

// The reasons in the order in which open() looks for them: the first that applies is reported.
enum class Drop : uint8_t {
  kBadMagic,          // not ours: somebody speaks another protocol
  kBadVersion,        // another release of sluice
  kBadCheck,          // the keyed check does not fit: a stranger, or bytes changed on the way
  kTooLong,           // more payload than any message may have; for a goodbye that is one byte
  kOutOfSequence,     // repeated, missing or reordered
  kWrongSource,       // not from the rank that this connection belongs to
  kWrongDestination,  // meant for another rank
  kWrongLane,         // meant for another lane
  kWrongEpoch,        // of a membership that is past, or not ours yet
  kUnknownFlags,
  kUnknownStage,
  kUnknownDType,
  kRaggedLength,  // the payload is not a whole number of its dtype
  kReserved,      // bytes that must be zero are not
  kRefused,       // well formed, but the receiver did not want it
  kNoRoom,        // the receiver gave a landing that is smaller than the payload
  kBadPayload,    // the payload does not match its checksum or tag: its sender is lost
};
inline constexpr size_t kDropReasons = static_cast<size_t>(Drop::kBadPayload) + 1;

std::string_view name(Drop drop);

// True iff nothing after this header can be trusted, its length least of all, so that a stream
// cannot find the next header and has to end. After the other reasons the payload is read past and
// the stream goes on.
constexpr bool endsStream(Drop drop) {
  return drop <= Drop::kOutOfSequence;
}

struct DropCounters {
  std::array<uint64_t, kDropReasons> byReason{};

  void count(Drop drop) { ++byReason[static_cast<size_t>(drop)]; }
  uint64_t of(Drop drop) const { return byReason[static_cast<size_t>(drop)]; }
  uint64_t total() const;
  std::string toString() const;  // "bad check 2, wrong epoch 1", "none"
};

}  // namespace sluice::wire
