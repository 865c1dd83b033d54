#include <sluice/join/membership/epoch_record.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace sluice::membership {
namespace {

constexpr uint8_t kEpochVersion = 2;

Status faultOf(const EpochRecord& record, std::string_view what) {
  return {Code::kInvalidArgument,
          fmt::format("the record of epoch {} cannot be right: {}", record.number, what)};
}

void writeMembers(base::ByteWriter& writer, const std::vector<Member>& members) {
  writer.number(static_cast<uint32_t>(members.size()));
  for (const Member& member : members) write(writer, member);
}

std::vector<Member> readMembers(base::ByteReader& reader) {
  std::vector<Member> members(reader.count(kMostMembers, kLeastMemberBytes));
  for (Member& member : members) member = readMember(reader);
  return members;
}

std::string encodeUnchecked(const EpochRecord& record) {
  base::ByteWriter writer;
  writer.reserve(256 + (record.members.size() + record.lost.size()) * 128);
  writer.number(kEpochVersion);
  writer.number(index(record.number));
  writer.number(index(record.firstStep));
  writeId(writer, record.proposer);
  writeId(writer, record.nonce);
  writeId(writer, record.run);
  writer.number(static_cast<uint64_t>(record.proposed));
  writer.text(record.why);
  writeMembers(writer, record.members);
  writeMembers(writer, record.lost);
  return base::textOf(writer.bytes());
}

}  // namespace

std::optional<Rank> EpochRecord::rankOf(const MemberId& id) const {
  const auto found = std::ranges::find(members, id, &Member::id);
  if (found == members.end()) return std::nullopt;
  return Rank{static_cast<uint32_t>(found - members.begin())};
}

Status check(const EpochRecord& record) {
  if (record.members.empty()) return faultOf(record, "it has no members");
  if (record.members.size() > kMostMembers || record.lost.size() > kMostMembers)
    return faultOf(record, "it has too many members");
  if (record.why.size() > kLongestReasonBytes) return faultOf(record, "its reason is too long");
  if (!record.nonce.isSet() || !record.run.isSet() || !record.proposer.isSet())
    return faultOf(record, "it has no nonce, no run or no proposer");
  std::set<MemberId> known;
  for (const auto* list : {&record.members, &record.lost}) {
    for (const Member& member : *list) {
      // The rules hold for records that are written and for those that are read. A record with
      // a member in both lists, or twice in one, would give a rank to a process that is not
      // there.
      SLUICE_RETURN_IF_ERROR(check(member));
      if (!known.insert(member.id).second) return faultOf(record, "it has a member twice");
    }
  }
  if (encodeUnchecked(record).size() > kLargestRecordBytes)
    return faultOf(record, "its members' names and addresses are too long together");
  return base::ok();
}

std::string encode(const EpochRecord& record) {
  return encodeUnchecked(record);
}

Result<EpochRecord> decodeEpoch(std::string_view bytes) {
  EpochRecord record;
  if (bytes.size() > kLargestRecordBytes)
    return Status(Code::kDataLoss, "the record of an epoch is too long");
  base::ByteReader reader(std::as_bytes(std::span(bytes)));
  const auto version = reader.number<uint8_t>();
  record.number = Epoch{reader.number<uint32_t>()};
  record.firstStep = Step{reader.number<uint64_t>()};
  record.proposer = readId(reader);
  record.nonce = readId(reader);
  record.run = readId(reader);
  record.proposed = static_cast<WallTime>(reader.number<uint64_t>());
  record.why = reader.text(kLongestReasonBytes);
  record.members = readMembers(reader);
  record.lost = readMembers(reader);
  // The reader does not stop at a fault but returns zeros from there on, so one check at the
  // end covers all fields. A record is taken as a whole or not at all.
  const bool isWhole = !reader.failed() && reader.atEnd() && version == kEpochVersion;
  if (!isWhole || !check(record).isOk())
    return Status(Code::kDataLoss, "the record of an epoch is malformed");
  return record;
}

}  // namespace sluice::membership
