// The part of a store that belongs to one job: the names of its keys, and the seals of its values.
//
// A job's part of the store is named after the job and its key, so jobs of the same name with
// different keys do not see each other. Every value is sealed with the job's key and bound to the
// name of its own key, which holds the epoch's number or the member's id. A party
// that can write to the store but does not hold the job key can remove values, but cannot make one
// that opens, nor move one to another place. Any thread; a value.
#pragma once

#include <string>
#include <string_view>

#include <sluice/join/membership/epoch_record.h>
#include <sluice/join/membership/key_values.h>
#include <sluice/secret/job_key.h>

namespace sluice::membership {

// Accepts 1 to 64 letters, digits, '-', '_' and '.'.
Status checkJobName(std::string_view job);

class JobSpace final {
 public:
  // REQUIRES: checkJobName(job).isOk()
  JobSpace(std::string_view job, const secret::JobKey& key);

  const std::string& job() const { return job_; }

  KeyRange epochs() const { return keysUnder(prefix_ + "epoch/"); }
  KeyRange epochsFrom(uint64_t number) const;    // this number and higher ones
  KeyRange epochsBefore(uint64_t number) const;  // lower ones
  KeyRange members() const { return keysUnder(prefix_ + "member/"); }
  // The key that exists from the moment an epoch is written until another one follows it.
  std::string latchKey(Epoch number) const;

  // Returns the entry for an epoch or a member, with revision 0.
  Entry seal(const EpochRecord& record) const;
  Entry seal(const Member& member) const;

  // The record in an entry. kDataLoss if no holder of the job key has written it for this key.
  Result<EpochRecord> openEpoch(const Entry& entry) const;
  Result<Member> openMember(const Entry& entry) const;

 private:
  std::string epochKey(uint64_t number) const;
  std::string memberKey(const MemberId& id) const { return members().first + id.toString(); }
  Status notOurs(const Entry& entry, std::string_view why) const;

  std::string job_;
  secret::Key key_;
  std::string prefix_;
};

}  // namespace sluice::membership
