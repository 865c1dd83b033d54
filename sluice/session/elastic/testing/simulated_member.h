// One process of a simulated job: it joins, opens a session, trains, and leaves. Membership, the
// members' talk, epochs and strategies are the product's own classes; the training program, and what
// Trainer does for it by waiting, are small stand-ins. Used by simulated_job.cc only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sluice/data/gate/gates.h>
#include <sluice/join/membership/talk/member_channel.h>
#include <sluice/join/membership/testing/memory_membership.h>
#include <sluice/session/elastic/epochs.h>
#include <sluice/session/elastic/testing/process_loop.h>
#include <sluice/transport/fabric/deferred_lanes.h>

namespace sluice::session {

class SimulatedJob;

// How far a process has come.
enum class LifePhase : uint8_t { kJoining, kOpening, kTraining, kLeaving, kOver };

class SimulatedMember final : private fabric::Receiver,
                              private membership::MemberChannel::Listener {
 public:
  using Moment = std::pair<uint64_t, TensorId>;  // step and tensor
  struct Seen {
    std::vector<Epoch> made;  // by the tensor's slices
    bool isEmpty = false;
    std::vector<float> values;
    friend bool operator==(const Seen&, const Seen&) = default;
  };

  SimulatedMember(SimulatedJob& job, uint32_t number);
  ~SimulatedMember() override;

  // Rank 0 writes the first epoch; the others read it.
  void writeFirst(membership::EpochRecord first);
  void readFirst(const membership::Nonce& nonce);
  void start();  // all have read it

  // From outside.
  void kill(bool withItsHost);
  void stop() { loop_.stop(); }
  void goOn() { loop_.goOn(); }
  void setStoreAway(const std::string& why);

  bool isKilled() const { return isKilled_; }
  bool isOver() const { return isKilled_ || phase_ == LifePhase::kOver; }
  bool hasFinished() const { return phase_ == LifePhase::kOver && end_ && end_->isOk(); }
  const std::optional<Status>& end() const { return end_; }
  LifePhase phase() const { return phase_; }
  uint64_t step() const { return step_; }
  Epoch epoch() const { return epoch_; }
  std::string describe();

  // What it has seen, for comparisons.
  const std::map<Moment, Seen>& seen() const { return seen_; }
  const std::map<std::string, std::vector<std::string>>& rounds() const { return rounds_; }
  const std::vector<std::string>& leaveRound() const { return leaveRound_; }
  const std::vector<EpochLog>& history() const { return history_; }
  const std::map<uint64_t, Epoch>& agreed() const { return agreed_; }

 private:
  void onFirstWritten(const membership::EpochRecord& first,
                      const Result<membership::StoredEpoch>& got);
  void startChannel(const membership::StoredEpoch& first);
  Result<std::unique_ptr<fabric::WatchedFabric>> makeFabric(std::vector<uint32_t> ports, Rank rank,
                                                            Epoch epoch,
                                                            fabric::Receiver& receiver);
  Result<EpochPort> openPort();
  void open();
  void beginTraining(Result<std::unique_ptr<EpochFabric>> fabric);
  void beginStep();
  void handOverNext();
  void awaitNext();
  void take(TensorId tensor);
  void afterStep();
  void gatherMean();
  void broadcastBuffers();
  void leave();
  void leaveChannel();
  void endWith(const Status& why);
  void abandon();
  void freeAll();
  void setPhase(LifePhase phase);

  // MemberChannel::Listener
  void onEpoch(const membership::EpochView& view) override;
  void onEnd(const Status& why) override { endWith(why); }
  Step nextStep() const override { return Step{0}; }

  // fabric::Receiver, of the session
  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  void onPeerLost(Rank from, const Status& why) override;
  void onPeerLeft(Rank /*from*/) override {}

  SimulatedJob& job_;
  const uint32_t number_;
  ProcessLoop loop_;
  const uint32_t port_;  // of the members' own fabric
  LifePhase phase_ = LifePhase::kJoining;
  bool isKilled_ = false;
  std::optional<Status> end_;
  Epoch epoch_{};
  std::optional<membership::StoredEpoch> firstRead_;

  std::vector<std::vector<float>> memories_;  // by TensorId: the training program's
  std::vector<TensorMemory> memory_;
  gate::Gates gates_;
  uint64_t step_ = 0;
  size_t handedOver_ = 0;
  size_t taken_ = 0;

  std::map<Moment, Seen> seen_;
  std::map<std::string, std::vector<std::string>> rounds_;
  std::vector<std::string> leaveRound_;
  std::vector<EpochLog> history_;
  std::map<uint64_t, Epoch> agreed_;  // by steps begun: the epoch that programs are shown

  std::set<Rank> refused_;
  fabric::DeferredLanes deferred_;
  membership::MemoryKeyValues* way_ = nullptr;          // to the store, while there is a membership
  std::unique_ptr<membership::Membership> membership_;  // until the channel has it
  std::unique_ptr<membership::MemberChannel> channel_;
  std::unique_ptr<Epochs> epochs_;
  std::unique_ptr<algorithms::Strategy> strategy_;
  algorithms::ElasticStrategy* elastic_ = nullptr;  // the same
  std::unique_ptr<EpochFabric> fabric_;
};

}  // namespace sluice::session
