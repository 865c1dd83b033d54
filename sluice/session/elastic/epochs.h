// Takes a session from epoch to epoch (docs/members.md): when members are lost, it ends the
// connections of the old epoch, makes those of the new one, and lets the strategy go on over them.
//
// It knows no sockets: whoever makes it opens the ports, so a simulation can run it as it is
// (testing/). Belongs to the job's loop, except for connect(), which waits, makeStrategy() and
// history().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sluice/algorithms/elastic/elastic_strategy.h>
#include <sluice/base/await.h>
#include <sluice/base/config.h>
#include <sluice/data/plan/plan.h>
#include <sluice/join/membership/talk/member_channel.h>
#include <sluice/session/elastic/epoch_fabric.h>
#include <sluice/session/elastic/epoch_history.h>
#include <sluice/session/elastic/epoch_pulse.h>

namespace sluice::session {

// One member's place in an epoch.
struct EpochPlace {
  Rank rank{};
  Epoch epoch{};
  std::vector<std::string> addresses;  // of every member's listener, by rank
};

// A port that is open for the connections of one epoch.
struct EpochPort {
  using Connect = std::function<Result<std::unique_ptr<fabric::WatchedFabric>>(
      const EpochPlace& place, fabric::Receiver& receiver, fabric::Pulse* pulse)>;

  std::string address;  // which the other members are told
  Connect connect;      // to the members of the epoch, who have told theirs; called at most once
};

// The parts of a job that its sessions' epochs stand on. REQUIRES: they outlive the sessions.
struct EpochsJob {
  Loop& loop;
  const base::Config& config;
  membership::MemberChannel& members;
  fabric::Pulse* pulse;  // null: nobody says how busy it is
  const base::Interruption& interruption;
  std::function<Result<EpochPort>()> openPort;  // on the loop; each epoch has a port of its own
};

class Epochs final : private membership::MemberChannel::Listener {
 public:
  struct Events {
    std::function<void()> onEntered;               // ranks have changed
    std::function<void(const Status& why)> onEnd;  // this member takes part no longer
    std::function<Step()> nextStep;
  };

  // `name` is the session's, and `first` is the plan for the members of the job's first epoch.
  Epochs(EpochsJob job, std::string name, plan::Plan first);
  ~Epochs() override;
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;

  // Meets the members of the present epoch, and connects to them. Waits; not on the loop.
  Result<std::unique_ptr<EpochFabric>> connect(fabric::Receiver& receiver, Events events);

  // Does the same step by step: `connected` runs later, unless stop() comes first. No time limit.
  // Loop thread only.
  using Connected = std::function<void(Result<std::unique_ptr<EpochFabric>>)>;
  void connectLater(fabric::Receiver& receiver, Events events, Connected connected);

  // Makes a strategy that outlives lost members. REQUIRES: connect() has returned ok.
  Result<std::unique_ptr<algorithms::Strategy>> makeStrategy(
      const algorithms::Context& context, algorithms::ElasticStrategy::Make make);
  // The strategy is in its place: losses may count.
  void begin();
  // Ranks change no longer.
  void stop();

  // The session's fabric has lost a rank of the present epoch.
  void onPeerLost(Rank rank, const Status& why);

  // Puts the bytes of `root` into everybody's `data`. If the root is lost before anybody has them,
  // they are those of the lowest member.
  void broadcast(Rank root, const std::shared_ptr<std::vector<std::byte>>& data, fabric::Done done);

  const plan::Plan& plan() const { return *plan_; }  // of the present epoch
  fabric::Pulse* pulse() { return &pulse_; }
  std::string describeWait() const;

  const EpochHistory& history() const { return history_; }  // any thread

 private:
  void onEpoch(const membership::EpochView& view) override;
  void onEnd(const Status& why) override;
  Step nextStep() const override { return events_.nextStep(); }

  void meetFirst();
  void enterFirst(const membership::EpochView& view, const EpochPort& port,
                  const Result<membership::GatherRounds::Values>& addresses);
  void changeTo(const membership::EpochView& view);
  void meet(const membership::EpochView& view);
  void enter(const membership::EpochView& view, const EpochPort& port,
             const Result<membership::GatherRounds::Values>& addresses);
  Result<std::unique_ptr<fabric::WatchedFabric>> makeFabric(const membership::EpochView& view,
                                                            const EpochPort& port,
                                                            std::vector<std::string> addresses);
  bool isPast(const membership::EpochView& view) const {
    return isStopped_ || view.epoch != wanted_.epoch;
  }
  void post(std::function<void()> task);

  const EpochsJob job_;
  membership::MemberChannel& members_;
  const std::string name_;
  const plan::Plan first_;
  EpochPulse pulse_;
  fabric::Receiver* receiver_ = nullptr;
  Events events_;
  Connected connected_;                              // until the first epoch is entered
  EpochFabric* fabric_ = nullptr;                    // the trainer's
  algorithms::ElasticStrategy* strategy_ = nullptr;  // the trainer's; for the loop from begin() on
  bool hasBegun_ = false;
  membership::EpochView here_;        // the epoch of the fabric
  membership::EpochView wanted_;      // the epoch that stands
  std::unique_ptr<plan::Plan> plan_;  // of here_
  bool isListening_ = false;
  bool isStopped_ = false;
  EpochHistory history_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
};

}  // namespace sluice::session
