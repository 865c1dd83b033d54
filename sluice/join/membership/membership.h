// The members of a job, agreed on in a store outside the job, so that no member is special.
//
// The store holds a list of epochs (epoch_record.h) to which members only append. A number is given
// once: of two proposers that follow the same epoch one wins, and the other is told who did. The
// store is asked only when membership changes. While it cannot be reached, membership is frozen and
// nothing else is: health() says so.
//
// A Membership belongs to one loop: every call is made there, and it is destroyed there. Every
// callback of a call runs on the loop exactly once, never inside the call: with an answer, with the
// Status that says why there is no answer when `patience` is over, or with kCancelled from the
// destructor. A callback must not destroy the Membership, and must not call it after kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <sluice/join/membership/epoch_record.h>

namespace sluice::membership {

// The epoch that stands, and the store's revision in which its key came to be there. Only a member
// that knows it can follow the epoch.
struct StoredEpoch {
  EpochRecord record;
  uint64_t revision = 0;
};

class Membership {
 public:
  using Done = std::function<void(Status)>;
  using GotEpoch = std::function<void(Result<StoredEpoch>)>;
  using GotHistory = std::function<void(Result<std::vector<EpochRecord>>)>;
  using GotMembers = std::function<void(Result<std::vector<Member>>)>;

  virtual ~Membership() = default;

  // Shows `self` to others as long as this object lives and reaches the store. `done` runs when
  // others can see it for the first time, or when patience is over; the attempts go on then.
  // Nobody is a member by being announced, and a lost announcement ends no member: it is made anew.
  // REQUIRES: called once.
  virtual void announce(const Member& self, Duration patience, Done done) = 0;

  // True iff the store had the announcement when it was last asked.
  virtual bool isAnnounced() const = 0;

  // Takes the announcement back. Without it others see it until its lease has run out.
  virtual void withdraw(Duration patience, Done done) = 0;

  // Answers with everybody who is announced, in the order of their ids.
  virtual void announced(Duration patience, GotMembers got) = 0;

  // Appends the job's first epoch if the store has no epoch. Answers with the epoch that stands
  // afterwards, which is the caller's own iff it has the caller's nonce.
  virtual void begin(const EpochRecord& first, Duration patience, GotEpoch got) = 0;

  // Appends `next` if no epoch has followed `before`. Answers with the epoch that stands afterwards,
  // as begin() does. After a timeout the record may be in the store all the same: ask latest() or
  // call replace() again with the same nonce. `next` must have a higher number than `before`.
  // kNotFound: the store has lost `before`, or its successor. No epoch can follow it any more, since
  // others might have followed it already.
  virtual void replace(const StoredEpoch& before, const EpochRecord& next, Duration patience,
                       GotEpoch got) = 0;

  // From now on only epochs of this run of the job count. Others are a stranger's who has kept
  // records of an earlier job with the same name and key.
  virtual void bindTo(const Nonce& run) = 0;

  // Answers with the epoch that stands; kNotFound if the job has no epoch. An epoch that this
  // object has seen stands even if the store was restored from a backup and has lost it.
  virtual void latest(Duration patience, GotEpoch got) = 0;

  // Answers with at most `most` of the last epochs, the oldest first.
  virtual void history(size_t most, Duration patience, GotHistory got) = 0;

  // From now on calls `onEpoch` for each epoch that is newer than all that this object has seen: once,
  // in rising order, in whichever way it was seen first, and before an answer that holds it. Some may
  // be skipped, the last one never is. Only one watcher: a second call replaces the first one's
  // callback, and an empty one ends it.
  virtual void watch(std::function<void(const StoredEpoch&)> onEpoch) = 0;

  // Ok, or the reason why the store cannot be reached and membership is frozen.
  virtual const Status& health() const = 0;
  // Calls `changed` whenever health() changes between ok and frozen. Only one, as above.
  virtual void onHealth(std::function<void(const Status&)> changed) = 0;
};

}  // namespace sluice::membership
