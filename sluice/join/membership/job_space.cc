#include <sluice/join/membership/job_space.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/text.h>
#include <sluice/secret/digest.h>
#include <sluice/secret/sealed_note.h>

namespace sluice::membership {
namespace {

constexpr size_t kLongestJobName = 64;
constexpr size_t kKeyNameBytes = 8;

// Returns a name of the key that does not give it away.
std::string nameOf(const secret::Key& key) {
  // The prefix separates this digest from every other use of the key. Jobs of one name with
  // different keys get different places in the store, and do not trip over each other's
  // records.
  std::string text = "sluice membership key name";
  for (const std::byte byte : key.bytes()) text.push_back(static_cast<char>(byte));
  std::string name;
  for (const char byte : secret::digest(text).substr(0, kKeyNameBytes))
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  std::ranges::fill(text, '\0');
  return name;
}

std::string labelOf(const Entry& entry) {
  // The seal covers the key it is stored under. Whoever can write to the store but lacks the
  // job's key could otherwise copy a valid record to another place, and one epoch would pass
  // for a later one.
  return "sluice membership 1 " + entry.key;
}

}  // namespace

Status checkJobName(std::string_view job) {
  const bool isName = std::ranges::all_of(job, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
  if (!isName || job.empty() || job.size() > kLongestJobName)
    return {Code::kInvalidArgument,
            fmt::format("invalid job name '{}'; use 1 to {} letters, digits, '-', '_' and '.'",
                        base::printable(job.substr(0, 2 * kLongestJobName)), kLongestJobName)};
  return base::ok();
}

// The version is a part of every key, so that processes of a later format share a store with
// older ones and see nothing of them.
JobSpace::JobSpace(std::string_view job, const secret::JobKey& key)
    : job_(job),
      key_(key.derive(secret::Purpose::kMembership)),
      prefix_(fmt::format("/sluice/v1/{}/{}/", job, nameOf(key_))) {}

// All numbers have the same length, so that keys are in the order of the numbers.
std::string JobSpace::epochKey(uint64_t number) const {
  return fmt::format("{}{:010}", epochs().first, number);
}

std::string JobSpace::latchKey(Epoch number) const {
  return fmt::format("{}last/{:010}", prefix_, index(number));
}

KeyRange JobSpace::epochsFrom(uint64_t number) const {
  return {epochKey(number), epochs().end};
}

KeyRange JobSpace::epochsBefore(uint64_t number) const {
  return {epochs().first, epochKey(number)};
}

Entry JobSpace::seal(const EpochRecord& record) const {
  Entry entry{.key = epochKey(index(record.number))};
  entry.value = secret::sealNote(key_, encode(record), labelOf(entry));
  return entry;
}

Entry JobSpace::seal(const Member& member) const {
  Entry entry{.key = memberKey(member.id)};
  entry.value = secret::sealNote(key_, encode(member), labelOf(entry));
  return entry;
}

Status JobSpace::notOurs(const Entry& entry, std::string_view why) const {
  return {Code::kDataLoss,
          fmt::format("the value of {} in the store was not written by a member of job {}: {}",
                      base::printable(entry.key), job_, why)};
}

Result<EpochRecord> JobSpace::openEpoch(const Entry& entry) const {
  const auto note = secret::openNote(key_, entry.value, labelOf(entry));
  if (!note.isOk()) return notOurs(entry, note.status().message());
  auto record = decodeEpoch(*note);
  if (!record.isOk()) return notOurs(entry, record.status().message());
  // The seal has already bound the value to its place; this catches a member of the job that
  // wrote the wrong number into it.
  if (epochKey(index(record->number)) != entry.key)
    return notOurs(entry, "it is the record of another epoch");
  return record;
}

Result<Member> JobSpace::openMember(const Entry& entry) const {
  const auto note = secret::openNote(key_, entry.value, labelOf(entry));
  if (!note.isOk()) return notOurs(entry, note.status().message());
  auto member = decodeMember(*note);
  if (!member.isOk()) return notOurs(entry, member.status().message());
  if (memberKey(member->id) != entry.key)
    return notOurs(entry, "it is the record of another member");
  return member;
}

}  // namespace sluice::membership
