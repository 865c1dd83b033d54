// One member's way to the others of a running job: who is in it, who is lost, and what they say to
// each other beside the steps.
//
// Members talk over a fabric of their own, which lasts as long as the job: a rank of it names a
// member for ever. It alone judges who is lost. The store is asked when somebody is
// (epoch_proposer.h), and everybody follows the epoch that it holds then. What belongs to an epoch,
// such as the fabric of a session, is a Listener.
//
// Belongs to one loop, on which it is made, called and destroyed; view() may be called by any
// thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/base/mutex.h>
#include <sluice/join/membership/epoch_proposer.h>
#include <sluice/join/membership/talk/epoch_view.h>
#include <sluice/join/membership/talk/gather_rounds.h>
#include <sluice/join/membership/talk/member_message.h>
#include <sluice/transport/fabric/deferred_lanes.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::membership {

class MemberChannel final : private fabric::Receiver {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // A new epoch stands, and this member is in it.
    virtual void onEpoch(const EpochView& view) = 0;
    // This member takes part no longer. Nothing follows.
    virtual void onEnd(const Status& why) = 0;
    // Returns the step that comes next, for people who read the list of epochs.
    virtual Step nextStep() const = 0;
  };

  // Makes the fabric over which the members of the first epoch talk.
  using MakeFabric = std::function<Result<std::unique_ptr<fabric::Fabric>>(fabric::Receiver&)>;

  // `first` is the epoch with which the job has begun, and `self` this member's rank in it.
  // REQUIRES: the loop outlives this.
  static Result<std::unique_ptr<MemberChannel>> start(Loop& loop,
                                                      std::unique_ptr<Membership> membership,
                                                      const StoredEpoch& first, Rank self,
                                                      const EpochProposerOptions& options,
                                                      const MakeFabric& makeFabric);
  ~MemberChannel() override;
  MemberChannel(const MemberChannel&) = delete;
  MemberChannel& operator=(const MemberChannel&) = delete;

  EpochView view() const {
    return view_.with([](const EpochView& view) { return view; });
  }

  // REQUIRES: a listener outlives its time here.
  void add(Listener& listener) { listeners_.insert(&listener); }
  void remove(Listener& listener) { listeners_.erase(&listener); }

  // Every member of the job brings a value, and gets the values of all: see gather_rounds.h. A value has at
  // most kLongestValueBytes, or `most` if that is more. `got` runs within `atMost`, never inside this
  // call.
  static constexpr size_t kLongestValueBytes = size_t{64} << 20;
  void gather(const std::string& key, size_t most, GatherRounds::Bring bring, Duration atMost,
              GatherRounds::Got got);

  // The members of the present epoch tell each other what belongs to it alone. `got` runs with
  // kCancelled if the epoch ends before all are there. Never inside this call.
  void meet(const std::string& name, const std::string& value, GatherRounds::Got got);

  // Leaves a note for the other members; `then` runs when one of them has left it.
  void leaveNote(const std::string& key, const std::string& value);
  void whenNoted(const std::string& key, std::function<void(const std::string&)> then);

  // A connection to the member that has `rank` in the epoch `epoch` is broken. The member is lost
  // if this fabric says so, too, or if it is still in that epoch after a while.
  void suspect(Epoch epoch, Rank rank, const Status& why);

  // Leaves in good order: others have all that they can ask of this member. `done` runs within
  // about `atMost`.
  void leave(Duration atMost, const std::function<void()>& done);

  // Says what a change of members waits for; empty if members do not change.
  std::string describeWait() const { return proposer_->describeWait(); }
  const Status& end() const { return ended_; }  // ok: this member takes part

 private:
  struct Meeting {
    std::map<Rank, std::string> values;
    GatherRounds::Got got;
  };

  MemberChannel(Loop& loop, std::unique_ptr<Membership> membership, const StoredEpoch& first,
                Rank self, const EpochProposerOptions& options);

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  void onPeerLost(Rank from, const Status& why) override;
  void onPeerLeft(Rank from) override;

  void takeMessage(Rank member, const std::vector<std::byte>& bytes);
  void keepEarly(Rank member, MemberMessage message);
  void hear(Rank member, const MemberMessage& message);
  void hearMeeting(Rank from, const MemberMessage& message);
  void meetIfComplete(const std::pair<std::string, uint64_t>& id);
  void hearOfLoss(Rank lost, Rank witness);
  void noteLoss(Rank member, const Status& why);
  void suspectFor(int looks, Epoch epoch, Rank rank, const Status& why);
  void send(const std::vector<Rank>& ranks, const MemberMessage& message);  // of the present epoch
  void follow(const StoredEpoch& stored);
  void enter(const EpochView& view);
  void judgeKnownLosses();
  void endWith(const Status& why);
  void refuse(Rank member, const Status& why);
  void leaveWhenIdle(TimePoint deadline, const std::function<void()>& done);
  const MemberId& idOf(Rank member) const { return first_.members[index(member)].id; }
  void post(std::function<void()> task);
  TimerId after(Duration delay, const std::function<void()>& task);
  std::vector<GatherRounds::Got> takeMeetings();  // of this epoch that somebody here waits for

  Loop& loop_;
  const EpochRecord first_;
  const Rank self_;  // in the first epoch
  const Duration patience_;
  base::Guarded<EpochView> view_;
  EpochView now_;  // the same, for the loop
  std::set<Listener*> listeners_;
  std::map<Rank, Status> lost_;                // members that this one cannot reach, and why
  std::set<std::pair<Rank, Rank>> witnessed_;  // lost member, and the member that has said so
  std::map<std::string, std::string> notes_;
  std::multimap<std::string, std::function<void(const std::string&)>> awaitedNotes_;
  std::map<std::pair<std::string, uint64_t>, Meeting> meetings_;  // of the present epoch
  std::map<std::string, uint64_t> met_;                           // meetings begun in this epoch
  std::vector<std::pair<Rank, MemberMessage>> early_;             // messages of epochs to come
  size_t earlyBytes_ = 0;
  GatherRounds rounds_;
  Status ended_;
  fabric::DeferredLanes deferred_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for timers and completions
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<EpochProposer> proposer_;
  std::unique_ptr<fabric::Fabric> fabric_;
};

}  // namespace sluice::membership
