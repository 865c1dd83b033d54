// Calls that are not steps: every member brings a value, and all get the values of all. They have
// the same values on all members of an epoch, or all members make the call again in the next one.
//
//   begin()      -> the member's value goes to every other member
//   all are here -> the round is complete: its values are handed out, and kept until every member
//                   of the epoch has said that it has them, too
//   new epoch    -> a member that has a round complete hands its values to the others; members of a
//                   round that nobody has complete bring their values anew
//
// All get the same values. Values of an epoch complete a round only if every member of that epoch
// brings one in it. A member that has the round complete from an epoch before brings no other
// value, so no other values can become complete.
//
// Belongs to one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/join/membership/talk/epoch_view.h>
#include <sluice/join/membership/talk/member_message.h>

namespace sluice::membership {

class GatherRounds final {
 public:
  using Values = std::vector<std::string>;  // by rank of the epoch in which the round was completed
  using Got = std::function<void(Result<Values>)>;
  // Returns the value of this member, in this epoch.
  using Bring = std::function<std::string(const EpochView&)>;
  using Send = std::function<void(const std::vector<Rank>& to, const MemberMessage& message)>;

  // `send` sends a message to ranks of the present epoch. `due` is called when runDue() has something
  // to run: completions never run inside begin() or onMessage().
  GatherRounds(Send send, std::function<void()> due)
      : send_(std::move(send)), due_(std::move(due)) {}
  void runDue();

  // Every member calls it, rounds of one key in the same order. No value has more than `most` bytes.
  // `got` runs once, never inside this call. Returns the number of the round, for giveUp().
  uint64_t begin(const std::string& key, size_t most, Bring bring, Got got);

  // Nobody waits for the round any more: `got` runs with `why`, if it has not run yet.
  void giveUp(const std::string& key, uint64_t number, const Status& why);
  void giveUpAll(const Status& why);

  // A new epoch begins. REQUIRES: no message of another epoch reaches onMessage().
  void enter(const EpochView& view);

  // A message of kind kValue, kResult or kHave. An error: no member in order sends it.
  Status onMessage(Rank from, const MemberMessage& message);

  // The bytes that a member has sent for rounds that were not begun here.
  size_t bytesAheadOf(Rank from) const;

  // True iff every round that was begun is complete at every member.
  bool isIdle() const { return rounds_.empty(); }

  // The ranks of the present epoch whose value is missing.
  std::vector<Rank> missing(const std::string& key, uint64_t number) const;

 private:
  struct Part {
    std::string bytes;
    uint64_t total = 0;
    bool isWhole() const { return bytes.size() == total; }
  };
  struct Round {
    bool hasBegun = false;
    size_t most = 0;  // bytes of one value, once it has begun
    Bring bring;
    Got got;
    std::map<Rank, Part> values;   // of the present epoch
    std::map<Rank, Part> results;  // that others hand over, in the present epoch
    std::optional<Values> complete;
    std::set<Rank> have;  // ranks of the present epoch that have it complete, too
  };
  using Id = std::pair<std::string, uint64_t>;

  void bringValue(const Id& id, Round& round);
  void tellResult(const Id& id, const Round& round);
  void completeIfWhole(const Id& id, Round& round);
  void complete(const Id& id, Round& round, Values values);
  void forgetIfEverybodyHasIt(const Id& id);
  void sendInParts(MemberMessageKind kind, const Id& id, const std::vector<Rank>& to,
                   const std::string& bytes);
  void sendToOthers(MemberMessageKind kind, const Id& id, const std::string& bytes);
  Status append(std::map<Rank, Part>& parts, Rank from, const MemberMessage& message, size_t most);
  void runLater(std::function<void()> completion);

  const Send send_;
  const std::function<void()> due_;
  EpochView view_;
  size_t mostMembers_ = 0;                 // in any epoch so far
  std::map<std::string, uint64_t> begun_;  // rounds by key
  std::map<Id, Round> rounds_;
  std::vector<std::function<void()>> completions_;  // to be run
};

}  // namespace sluice::membership
