#include <sluice/join/membership/member.h>

#include <chrono>

#include <fmt/format.h>

namespace sluice::membership {
namespace {

constexpr uint8_t kMemberVersion = 1;

}  // namespace

WallTime wallTimeNow() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status check(const Member& member) {
  if (!member.id.isSet()) return {Code::kInvalidArgument, "a member has no id"};
  if (member.host.size() > kLongestHostBytes || member.address.size() > kLongestAddressBytes)
    return {Code::kInvalidArgument,
            fmt::format("member {}: its host name of {} bytes (at most {}) or its address of {} "
                        "bytes (at most {}) is too long",
                        member.id.toString(), member.host.size(), kLongestHostBytes,
                        member.address.size(), kLongestAddressBytes)};
  return base::ok();
}

void write(base::ByteWriter& writer, const Member& member) {
  writeId(writer, member.id);
  writer.text(member.host);
  writer.text(member.address);
  writer.number(index(member.since));
  writer.number(static_cast<uint64_t>(member.came));
}

Member readMember(base::ByteReader& reader) {
  Member member;
  member.id = readId(reader);
  member.host = reader.text(kLongestHostBytes);
  member.address = reader.text(kLongestAddressBytes);
  member.since = Step{reader.number<uint64_t>()};
  member.came = static_cast<WallTime>(reader.number<uint64_t>());
  return member;
}

std::string encode(const Member& member) {
  base::ByteWriter writer;
  writer.number(kMemberVersion);
  write(writer, member);
  return base::textOf(writer.bytes());
}

Result<Member> decodeMember(std::string_view bytes) {
  base::ByteReader reader(std::as_bytes(std::span(bytes)));
  const auto version = reader.number<uint8_t>();
  Member member = readMember(reader);
  const bool isWhole = !reader.failed() && reader.atEnd() && version == kMemberVersion;
  if (!isWhole || !check(member).isOk())
    return Status(Code::kDataLoss, "the record of a member is malformed");
  return member;
}

}  // namespace sluice::membership
