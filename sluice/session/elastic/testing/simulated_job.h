// A whole job in one thread, from the fabric upwards, on one simulated clock: members join by a
// store, open a session, train, lose each other, agree on epochs, and leave. The store is slow, loses
// answers, forgets, and is restored from a backup; members are killed, stopped, and cut off from each
// other and from the store. All of it follows from a seed, so a seed that fails fails again.
//
// Real: WatchedFabric, MemberChannel, EpochProposer, GatherRounds, StoreMembership and its records,
// Epochs, EpochFabric, EpochHistory, ElasticStrategy and the algorithms. Left out: the rendezvous,
// doors, sockets and TLS, etcd and its client, Trainer and Session (whose calls wait), the pulse,
// devices, and Python.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/await.h>
#include <sluice/base/config.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/session/elastic/testing/simulated_member.h>
#include <sluice/session/elastic/testing/simulated_network.h>
#include <sluice/session/elastic/testing/simulated_time.h>

namespace sluice::session {

enum class JobFaultKind : uint8_t {
  // Nobody may be lost by these.
  kBlink,          // a member is stopped for less than the silence limit
  kBlinkedPath,    // or two members do not reach each other for as long
  kSuspendAll,     // every process is stopped for seconds, as with a machine that sleeps
  kStoreAway,      // nobody reaches the store
  kStoreCut,       // one member does not
  kLeasesEnd,      // the store forgets who is announced
  kStoreWiped,     // and everything else
  kStoreRestored,  // from a backup that was made before
  kStranger,       // puts records of an earlier job into the store, and bytes that are no record
  // By these only those that are gone.
  kKill,
  kLoseHost,  // nobody hears of its end
  // By these members may be turned out that live.
  kStop,     // longer than the silence limit
  kCutPair,  // two members, in both directions or in one
  kCutOff,   // one member from all others, perhaps from the store as well
  kSplit,    // two sides
  kBreak,    // one connection
};

struct JobFault {
  JobFaultKind kind{};
  Duration at{};                    // after the members have joined, or after `onceIn`
  std::optional<LifePhase> onceIn;  // the first member has come there
  bool onceInEpoch = false;         // the first member has entered a new epoch
  uint32_t member = 0;
  uint32_t other = 0;
  Duration length{};
  bool isOneWay = false;
  bool isFromStore = false;
};

class SimulatedJob final {
 public:
  explicit SimulatedJob(uint64_t seed);
  ~SimulatedJob();
  SimulatedJob(const SimulatedJob&) = delete;
  SimulatedJob& operator=(const SimulatedJob&) = delete;

  // Runs the job to its end, and judges it. An error says what must not be, and how it came to it.
  Status run();

  uint64_t hash() const { return time_.hash(); }
  uint64_t messages() const { return network_->messages(); }
  uint64_t events() const { return time_.eventsRun(); }
  size_t epochs() const { return epochs_.size(); }
  size_t finished() const;
  std::string describe() const;

  // For members.
  SimulatedTime& time() { return time_; }
  SimulatedNetwork& network() { return *network_; }
  const std::shared_ptr<membership::MemoryTable>& table() const { return table_; }
  const membership::StoreOptions& storeOptions() const { return storeOptions_; }
  const membership::EpochProposerOptions& proposerOptions() const { return proposerOptions_; }
  const base::Config& config() const { return config_; }
  const base::Interruption& noInterruption() const { return noInterruption_; }
  const plan::Plan& plan() const { return *plan_; }
  const algorithms::Algorithm& algorithm() const { return *algorithm_; }
  const optimizer::OptimizerSpec& update() const { return update_; }
  uint64_t steps() const { return steps_; }
  static std::string addressOf(uint32_t port) { return std::to_string(port); }
  static uint32_t portIn(const std::string& address) {
    return static_cast<uint32_t>(std::stoul(address));
  }

  void firstEpochIsWritten(Epoch number);
  void hasRead(uint32_t member);
  void reached(uint32_t member, LifePhase phase);
  void sawEpoch(uint32_t member, const membership::EpochView& view);
  void checkResult(uint32_t member, SimulatedMember::Moment moment,
                   const SimulatedMember::Seen& seen);
  void violated(const std::string& what);

 private:
  void drawJob();
  void drawFaults();
  void putEarlierJob();
  membership::EpochRecord firstRecord();
  membership::RandomId drawId();
  void schedule(size_t fault, Duration delay);
  void strike(const JobFault& fault);
  void strikeStore(const JobFault& fault);
  void cutApart(const std::vector<uint32_t>& one, const std::vector<uint32_t>& other, bool isOneWay,
                Duration length);
  void endLater(Duration length, Task end);
  void keepBackup();
  void restoreBackup();
  bool mayBeLost(uint32_t member) const;
  bool isOver() const;
  TimePoint limit() const;

  void judge();
  void judgeEnds();
  void judgeEnd(uint32_t member, const std::vector<Rank>& newest);
  void judgeStore();
  void compareMembers();
  void compare(uint32_t reference, uint32_t member);
  std::vector<Rank> newestMembers() const;
  std::vector<membership::EpochRecord> stored() const;
  bool hasHappened(JobFaultKind kind) const { return happened_.contains(kind); }
  bool mayTurnOutTheLiving() const;
  bool mayLoseAnybody() const;

  const uint64_t seed_;
  SimulatedTime time_;
  base::Config config_;
  const base::Interruption noInterruption_;
  const algorithms::Algorithm* algorithm_ = nullptr;
  optimizer::OptimizerSpec update_;
  std::unique_ptr<plan::Plan> plan_;
  uint32_t size_ = 0;
  uint64_t steps_ = 0;
  membership::EpochProposerOptions proposerOptions_;
  membership::StoreOptions storeOptions_;
  membership::MemoryFaults storeFaults_;
  const std::shared_ptr<membership::MemoryTable> table_ =
      std::make_shared<membership::MemoryTable>();
  std::optional<membership::MemoryTable::Backup> backup_;
  Epoch newestInBackup_{};
  std::optional<membership::Entry> earlier_;  // the record of an earlier job
  membership::EpochRecord first_;
  uint32_t read_ = 0;      // members that have the first epoch
  bool hasBegun_ = false;  // every member has joined
  TimePoint calmUntil_{};  // no member is stopped shortly until then

  std::vector<JobFault> faults_;
  std::vector<bool> scheduled_;  // by fault
  std::set<JobFaultKind> happened_;
  uint64_t active_ = 0;  // faults that are due or under way
  TimePoint lastFaultEnd_{};
  std::map<Epoch, std::vector<Rank>> epochs_;  // that any member has seen, by its first ranks
  std::unique_ptr<SimulatedNetwork> network_;
  std::vector<std::unique_ptr<SimulatedMember>> members_;
  Status error_;
};

}  // namespace sluice::session
