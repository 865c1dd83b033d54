// The bytes of a flight recorder: the same in memory, in a mapped file, and in a file that was
// saved. ring.h writes them; tools/trace/flight_reader.h reads them, and trusts no byte.
//
// All is made of 8-byte words in the order of a little-endian machine, so that a writer stores each
// word at once and a reader never sees a half of one:
//
//   header    what the file is about, and where the other parts are
//   names     of sessions, layers and meetings: a word with the length, then the text
//   texts     the latest reasons, each in a slot of its own
//   records   the latest events, kRecordWords each
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::flight {

static_assert(std::endian::native == std::endian::little, "the words of a file are little-endian");

inline constexpr uint32_t kFileVersion = 1;
inline constexpr uint64_t kMagic = 0x5246'4543'4955'4c53;  // "SLUICEFR"

// Words of the header. Two numbers in one word: the first is the lower half.
enum HeaderWord : size_t {
  kMagicWord,
  kVersionAndHeaderWords,
  kRankAndWorld,
  kPidAndState,
  kRun,              // the same on all ranks of one job, different for the next job
  kBegan,            // the steady clock when the recorder began, ns
  kWallAhead,        // the wall clock, since 1970, minus the steady clock, ns
  kWallUncertainty,  // kWallAhead is wrong by at most this, ns
  kSaved,            // the steady clock when the file was written, ns; 0: it is a mapped file
  kNamesAt,          // the place of a part is counted in words from the beginning
  kNamesWords,
  kNamesUsed,  // words
  kTextsAt,
  kTexts,
  kTextsNext,  // texts that were ever added
  kRecordsAt,
  kRecords,
  kRecordsNext,  // records that were ever added
  kJobText,      // kHeaderTextWords each, ended by zeros
  kHostText = kJobText + 8,
  kHeaderWords = kHostText + 8,
};
inline constexpr size_t kHeaderTextWords = 8;

enum class RunState : uint32_t {
  kRunning = 0,  // or killed
  kFailed = 1,   // something went wrong, which the records say
  kEnded = 2,    // the job has ended in good order
};

// A slot of a text: the number of the text plus 1 and its length in one word, then its bytes.
inline constexpr size_t kTextWords = 32;
inline constexpr size_t kMostTextBytes = (kTextWords - 1) * sizeof(uint64_t);
inline constexpr size_t kMostNameBytes = 512;

// A record: head, time, step, name and slice, peer and bytes. The head has the low half of the
// record's number plus 1, the kind, a detail and the session.
inline constexpr size_t kRecordWords = 5;
inline constexpr uint32_t kNobody = 0xffff'ffff;  // as a peer

// The number of a kind is part of the file: never reuse one. Kinds that have a text keep its number,
// plus 1, in the field of bytes.
enum class EventKind : uint8_t {
  kStepBegins = 1,
  kHandedOver = 2,  // a gradient, by the training thread
  kSent = 3,        // a slice, to the network
  kReceived = 4,    // a worker's part of a slice, at its server
  kResult = 5,      // the result of a slice
  kWaitBegins = 6,  // at the gate of a layer
  kWaitEnds = 7,
  kWaitFails = 8,    // text
  kHeard = 9,        // the first message of a peer
  kPeerInStep = 10,  // the first message of a peer in this step
  kPeerLost = 11,    // text
  kPeerLeft = 12,
  kPeerEnds = 13,  // a peer's note about its end: text
  kMeetingBegins = 14,
  kMeetingEnds = 15,
  kMeetingFails = 16,     // text
  kBroadcastBegins = 17,  // the peer is the root
  kBroadcastEnds = 18,
  kBroadcastFails = 19,  // text
  kSessionBegins = 20,
  kSessionEnds = 21,  // detail 1: in good order
  kFailed = 22,       // text
  kStalled = 23,      // a wait that is long: text
  kEpochBegins = 24,  // the step is the epoch's number
  kMember = 25,       // a member of that epoch
  kAborted = 26,      // text, if a check of sluice has failed
  kAsked = 27,        // a signal has asked for this file
  kClock = 28,        // of a peer: the step is its clock minus ours, ns, and bytes its error, us
};

constexpr std::string_view name(EventKind kind) {
  switch (kind) {
    case EventKind::kStepBegins: return "step-begins";
    case EventKind::kHandedOver: return "handed-over";
    case EventKind::kSent: return "sent";
    case EventKind::kReceived: return "received";
    case EventKind::kResult: return "result";
    case EventKind::kWaitBegins: return "wait-begins";
    case EventKind::kWaitEnds: return "wait-ends";
    case EventKind::kWaitFails: return "wait-fails";
    case EventKind::kHeard: return "heard";
    case EventKind::kPeerInStep: return "peer-in-step";
    case EventKind::kPeerLost: return "peer-lost";
    case EventKind::kPeerLeft: return "peer-left";
    case EventKind::kPeerEnds: return "peer-ends";
    case EventKind::kMeetingBegins: return "meeting-begins";
    case EventKind::kMeetingEnds: return "meeting-ends";
    case EventKind::kMeetingFails: return "meeting-fails";
    case EventKind::kBroadcastBegins: return "broadcast-begins";
    case EventKind::kBroadcastEnds: return "broadcast-ends";
    case EventKind::kBroadcastFails: return "broadcast-fails";
    case EventKind::kSessionBegins: return "session-begins";
    case EventKind::kSessionEnds: return "session-ends";
    case EventKind::kFailed: return "failed";
    case EventKind::kStalled: return "stalled";
    case EventKind::kEpochBegins: return "epoch-begins";
    case EventKind::kMember: return "member";
    case EventKind::kAborted: return "aborted";
    case EventKind::kAsked: return "asked";
    case EventKind::kClock: return "clock";
  }
  return "?";
}

// True iff the field of bytes has the number of a text.
constexpr bool hasText(EventKind kind) {
  switch (kind) {
    case EventKind::kWaitFails:
    case EventKind::kPeerLost:
    case EventKind::kPeerEnds:
    case EventKind::kMeetingFails:
    case EventKind::kBroadcastFails:
    case EventKind::kFailed:
    case EventKind::kStalled:
    case EventKind::kAborted: return true;
    default: return false;
  }
}

constexpr uint64_t wordOf(uint32_t low, uint32_t high) {
  return low | uint64_t{high} << 32;
}
constexpr uint32_t lowOf(uint64_t word) {
  return static_cast<uint32_t>(word);
}
constexpr uint32_t highOf(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}

}  // namespace sluice::flight
