// A job of N members in one thread that loses some of them: every member has a loop that the test
// steps, and a training program that hands over gradients, waits for results, and then changes the
// memory that it got them in. Gradients may lie on a device: they come to host memory slice by slice,
// in any order, and results are copied back. A lost member stops where it is, or is cut off and takes the others for
// lost. Members notice losses at random moments, agree on epochs in a store that is slow, loses
// answers and is sometimes away, and enter each epoch one by one. Tests only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/elastic/elastic_strategy.h>
#include <sluice/base/config.h>
#include <sluice/base/testing/manual_loop.h>
#include <sluice/join/membership/epoch_proposer.h>
#include <sluice/join/membership/testing/memory_membership.h>
#include <sluice/transport/fabric/deferred_lanes.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>

namespace sluice::algorithms {

// A member that is lost. A moment counts the actions of all members.
struct Loss {
  uint32_t member = 0;  // by rank in the first epoch
  uint64_t moment = 0;
  bool isCutOff = false;     // it goes on, and cannot hear the others
  bool reachesStore = true;  // while it is cut off
};

struct ElasticJob {
  std::string algorithm = "sluice";
  uint32_t members = 3;
  uint64_t steps = 3;
  std::vector<Loss> losses{};
  uint64_t seed = 1;
  bool isOnDevice = false;  // gradients come slice by slice, and results are copied on
};

// One epoch, as all members know it.
struct TestEpoch {
  Epoch number;
  plan::Plan plan;
  std::vector<Rank> members;  // by rank in the epoch: their ranks in the first one
  fabric::LoopbackHub hub;
};

// The gradient of a member; empty if it hands nothing over in that step.
std::vector<float> gradientOf(Rank member, uint64_t step, const Tensor& tensor, TensorId id);

class ElasticMember;

class ElasticWorld final {
 public:
  explicit ElasticWorld(const ElasticJob& job);
  ~ElasticWorld();

  // Runs the job to its end. Returns how many actions that took, or what went wrong.
  Result<uint64_t> run();

  // A result that a member has seen.
  struct Seen {
    std::vector<Epoch> made;  // by the tensor's slices
    bool isEmpty = false;
    std::vector<float> values;
    friend bool operator==(const Seen&, const Seen&) = default;
  };

 private:
  friend class ElasticMember;
  using Moment = std::pair<uint64_t, TensorId>;  // step and tensor

  bool act();  // lets one member do one thing; false if nobody can do anything
  void loseMembers();
  bool noticeLoss();
  bool passTime();
  void heal();
  TestEpoch& epochOf(const membership::EpochRecord& record);
  membership::EpochRecord firstRecord() const;
  bool isOver() const;
  // True iff it is in the newest epoch and can do something.
  bool isIn(uint32_t member) const;
  bool isLost(uint32_t member) const { return lost_.contains(member); }
  Status check(Moment moment, const Seen& seen) const;
  Status compareMembers() const;
  std::string describe() const;

  const ElasticJob job_;
  base::Config config_;
  const Algorithm* algorithm_ = nullptr;
  std::mt19937_64 random_;
  const std::shared_ptr<membership::MemoryTable> table_ =
      std::make_shared<membership::MemoryTable>();
  const secret::JobKey key_ = secret::JobKey::random();
  std::vector<membership::Member> entries_;         // by member
  std::vector<std::unique_ptr<TestEpoch>> epochs_;  // by number
  std::vector<std::unique_ptr<ElasticMember>> members_;
  std::set<uint32_t> lost_;
  std::set<uint32_t> stopped_;                // of these, those that do nothing any more
  std::vector<std::map<Moment, Seen>> seen_;  // by member
  uint64_t actions_ = 0;
  bool isEnding_ = false;
  Status error_;
};

}  // namespace sluice::algorithms
