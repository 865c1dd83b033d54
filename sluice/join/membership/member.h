// A member of a job: one start of one process. A process that is started again is another member.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sluice/base/byte_io.h>
#include <sluice/base/ids.h>
#include <sluice/base/status.h>
#include <sluice/join/membership/random_id.h>

namespace sluice::membership {

// Names a member for ever, in all epochs.
using MemberId = RandomId;

// Milliseconds since 1970, by the wall clock of the process that wrote it. For people only: nothing
// is decided by it.
using WallTime = int64_t;
WallTime wallTimeNow();

inline constexpr size_t kLongestHostBytes = 255;
inline constexpr size_t kLongestAddressBytes = 1024;

struct Member {
  MemberId id;
  std::string host;     // for people
  std::string address;  // the fabric knows what it means
  Step since{};         // the first step that counts the member
  WallTime came = 0;    // the time at which it was taken in

  friend bool operator==(const Member&, const Member&) = default;
};

// Says what is wrong with a member that is to be written, if anything.
Status check(const Member& member);

// The bytes of a member, alone in its own value or inside an epoch's. A reader that has failed
// leaves a member of no meaning.
void write(base::ByteWriter& writer, const Member& member);
Member readMember(base::ByteReader& reader);
inline constexpr size_t kLeastMemberBytes = kIdBytes + 4 + 4 + 8 + 8;

std::string encode(const Member& member);
Result<Member> decodeMember(std::string_view bytes);

}  // namespace sluice::membership
