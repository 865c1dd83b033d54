// One epoch of a job as it lies in the store: its number, its members, and why the members changed.
// Plain values; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/join/membership/member.h>

namespace sluice::membership {

// Names one proposal: a proposer whose answer was lost recognises its own record by it.
using Nonce = RandomId;

inline constexpr size_t kMostMembers = 2048;
inline constexpr size_t kLongestReasonBytes = 1024;
// A store takes requests of 1.5 MiB, and a request holds one record.
inline constexpr size_t kLargestRecordBytes = size_t{1} << 20;

struct EpochRecord {
  Epoch number{};
  std::vector<Member> members;  // a member's place is its rank
  Step firstStep{};             // the first step of the epoch
  std::vector<Member> lost;     // members of the epoch before that are not in this one
  std::string why;              // the reason for the change, for people
  MemberId proposer;
  Nonce nonce;
  Nonce run;  // the nonce of the first epoch: a job of the same name and key has another one
  WallTime proposed = 0;

  // Returns the rank of a member; empty if it is not in this epoch.
  std::optional<Rank> rankOf(const MemberId& id) const;

  friend bool operator==(const EpochRecord&, const EpochRecord&) = default;
};

// Says what is wrong with a record that is to be written, if anything: it has 1 to kMostMembers
// members, no member twice, nobody both in and lost, a nonce, a run and a proposer, and texts of the right
// size.
Status check(const EpochRecord& record);

// REQUIRES: check(record).isOk().
std::string encode(const EpochRecord& record);

// Takes exactly what encode() gives for a record that is in order.
Result<EpochRecord> decodeEpoch(std::string_view bytes);

}  // namespace sluice::membership
