// Changes a job's epoch when members are lost: counts who has seen a loss, proposes the next epoch
// in the store, and follows the one that wins, whoever proposed it.
//
// Two members must have seen a loss before one of them proposes, so that a member whose own network
// is bad does not turn the others out. A member that is alone with what it has seen proposes later:
// two members that cannot hear each other would otherwise wait for ever. Several proposers are safe,
// since only one record can follow an epoch; the lower ranks propose first to spare the store.
//
// Belongs to one loop.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/join/membership/membership.h>

namespace sluice::membership {

struct EpochProposerOptions {
  Duration aloneAfter = std::chrono::milliseconds(1500);  // one member's word is enough by then
  Duration betweenProposers = std::chrono::milliseconds(100);
  Duration patience = std::chrono::seconds(2);  // with one request to the store
  Duration retryAfter = std::chrono::milliseconds(200);
  size_t fewestMembers = 1;  // with fewer the job ends
};

class EpochProposer final {
 public:
  struct Events {
    // A newer epoch stands, and this member is in it.
    std::function<void(const StoredEpoch&)> onEpoch;
    // This member takes part no longer, because of `why`. Nothing follows.
    std::function<void(const Status& why)> onEnd;
    // This member has seen that `lost` is gone: the other members are to hear of it.
    std::function<void(const MemberId& lost)> tellOthers;
    // Returns the first step that an epoch proposed now would have, for people who read the list.
    std::function<Step()> nextStep;
  };

  // `first` is the epoch that stands, and has `self`. REQUIRES: loop and membership outlive this.
  EpochProposer(Loop& loop, Membership& membership, const MemberId& self, StoredEpoch first,
                const EpochProposerOptions& options, Events events);
  ~EpochProposer();

  // This member cannot reach another one any more.
  void sawLoss(const MemberId& lost, const Status& why);
  // Another member says that it cannot.
  void heardOfLoss(const MemberId& lost, const MemberId& witness);

  const StoredEpoch& epoch() const { return epoch_; }

  // Says what a change waits for; empty if no change is due.
  std::string describeWait() const;

 private:
  struct Loss {
    std::set<MemberId> witnesses;
    std::string why;
    bool isOverdue = false;  // the other members have had their time to see it
  };

  bool isEnough(const Loss& loss) const;
  std::vector<MemberId> toBeRemoved() const;
  size_t placeAmongTheLiving() const;
  void proposeSoon();
  void propose();
  EpochRecord nextRecord(const std::vector<MemberId>& removed) const;
  void answered(const Result<StoredEpoch>& stored);
  void follow(const StoredEpoch& stored);
  void end(const Status& why);
  void after(Duration delay, const std::function<void()>& task);

  Loop& loop_;
  Membership& membership_;
  const MemberId self_;
  const EpochProposerOptions options_;
  const Events events_;
  StoredEpoch epoch_;
  std::map<MemberId, Loss> losses_;  // of members of the epoch that stands
  bool isProposing_ = false;         // a proposal is due or under way
  bool hasEnded_ = false;
  Status trouble_;  // why the last proposal has failed
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for timers and answers
};

}  // namespace sluice::membership
