// A job of a few ranks in one thread; one of them may be mad: it runs the algorithm like the
// others, but its messages are changed, doubled, dropped and put off on their way out, and others
// are made up. Every choice comes from a Choices, so that a seed or a fuzzer's bytes repeat a run.
// A broken invariant is a failed SLUICE_CHECK. Tests and fuzzing only; no test framework, so that
// fuzz/ can use it.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/testing/test_witness.h>
#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/base/testing/manual_loop.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>
#include <sluice/transport/fabric/testing/mad_fabric.h>

namespace sluice::algorithms {

using fabric::Choices;
using fabric::LateReceiver;
using fabric::MadFabric;

// An algorithm and how it is run.
struct MadSetting {
  std::string_view algorithm;  // as a user writes it
  std::string_view servers = "all";
  std::string_view update = "sgd:lr=1";
  bool waitsForWord = false;
  bool dgc = false;
  std::string_view codec = "none";
  int replanSteps = 0;
  uint32_t world = 3;
  bool overlaps = true;         // false: kvstore's no-overlap
  std::string_view clip = "0";  // of dgc

  // How it is watched, in legal runs.
  enum class Watched : uint8_t { kNot, kByObserver, kBySink };
  Watched watched = Watched::kNot;
  bool inParts = false;  // gradients come slice by slice, in any order
};

// True iff the order of events does not decide on the result.
bool isOrdered(const MadSetting& setting);

class MadWorld;

// One rank.
class MadRank final : public fabric::Receiver {
 public:
  MadRank(MadWorld& world, Rank rank, bool isMad);
  ~MadRank() override;
  MadRank(const MadRank&) = delete;
  MadRank& operator=(const MadRank&) = delete;

  base::ManualLoop& loop() { return loop_; }
  gate::Gates& gates() { return *gates_; }
  Strategy& strategy() { return *strategy_; }
  MadFabric& fabric() { return *fabric_; }
  bool isWorker() const { return isWorker_; }
  uint64_t steps() const { return step_; }
  std::vector<std::byte> results() const;

  // Does one thing that the training thread would do next; false if there is nothing.
  bool train(uint64_t steps);
  // Every gate is open: checks that everything was reported, if somebody watches.
  void expectAllReported();
  LateReceiver& late() { return late_; }
  void save();  // as a checkpoint does
  bool isSaving() const { return isSaving_; }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  void onPeerLost(Rank from, const Status& why) override;
  void onPeerLeft(Rank from) override;

 private:
  bool handOverNext();
  void sliceComes();
  void endStep();

  MadWorld& world_;
  base::ManualLoop loop_;
  LateReceiver late_;
  const bool isWorker_;
  std::vector<std::vector<std::byte>> gradients_;
  std::vector<std::vector<std::byte>> parameters_;
  std::vector<TensorMemory> memory_;
  std::unique_ptr<gate::Gates> gates_;
  std::unique_ptr<TestWitness> witness_;  // null: nobody watches
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<MadFabric> fabric_;
  uint64_t step_ = 0;                      // being handed over
  uint32_t handedOver_ = 0;                // tensors of it
  std::vector<SliceContribution> toCome_;  // slices of it
  std::vector<size_t> come_;               // by TensorId: slices of it
  bool isSaving_ = false;
};

class MadWorld final {
 public:
  // An empty `mad` makes the run a legal one.
  MadWorld(const MadSetting& setting, std::optional<Rank> mad, bool isStrict, Choices& choices);
  ~MadWorld() { ranks_.clear(); }
  MadWorld(const MadWorld&) = delete;
  MadWorld& operator=(const MadWorld&) = delete;

  // Makes up a message of the mad rank.
  void inject();
  // Runs what is ready on all ranks, in any order, until nothing is left; a run without end is a
  // failure.
  void settle();
  // Plays until every worker has made so many steps, in any order of events. True iff all got
  // there.
  bool trainAll(uint64_t steps);
  void play(size_t inputs);

  uint64_t& inputs() { return inputs_; }
  std::vector<std::unique_ptr<MadRank>>& ranks() { return ranks_; }
  const plan::Plan& plan() const { return *plan_; }
  const MadSetting& setting() const { return setting_; }
  const optimizer::OptimizerSpec& update() const { return update_; }
  const base::Config& config() const { return config_; }
  const Algorithm& algorithm() const { return *algorithm_; }
  fabric::LoopbackHub& hub() { return hub_; }
  Choices& choices() { return choices_; }
  bool isStrict() const { return isStrict_; }

 private:
  MadRank& any() { return *ranks_[choices_.below(ranks_.size())]; }
  void checkMemory();

  const MadSetting setting_;
  Choices& choices_;
  const std::optional<Rank> mad_;
  const bool
      isStrict_;  // a refused message loses its sender, as with a Trainer; else it is only dropped
  base::Config config_;
  const optimizer::OptimizerSpec update_;
  const Algorithm* algorithm_ = nullptr;
  std::unique_ptr<plan::Plan> plan_;
  fabric::LoopbackHub hub_;
  std::vector<std::unique_ptr<MadRank>> ranks_;
  uint64_t inputs_ = 0;  // mad messages
};

// The settings that are played against, one line for each algorithm and each of its forms.
std::span<const MadSetting> madSettings();

// Plays one world with a mad rank; returns how many of its messages were mad.
inline uint64_t playMad(const MadSetting& setting, Choices& choices, size_t inputs) {
  const Rank mad{static_cast<uint32_t>(choices.below(setting.world))};
  MadWorld world(setting, mad, /*isStrict=*/choices.isOneIn(4), choices);
  world.play(inputs);
  return world.inputs();
}

// Plays one world without a mad rank; returns every worker's parameters or means at the end.
inline std::vector<std::vector<std::byte>> playLegal(const MadSetting& setting, Choices& choices,
                                                     uint64_t steps) {
  MadWorld world(setting, std::nullopt, /*isStrict=*/true, choices);
  SLUICE_CHECK(world.trainAll(steps), setting.algorithm);
  std::vector<std::vector<std::byte>> results;
  for (const auto& rank : world.ranks()) {
    SLUICE_CHECK(rank->gates().error().isOk(), rank->gates().error().toString());
    if (!rank->isWorker()) continue;
    rank->expectAllReported();
    rank->save();
    world.settle();
    results.push_back(rank->results());
  }
  return results;
}

}  // namespace sluice::algorithms
