// One host of a simulated job: the real strategy with its queue, credit, shard and gates, on a
// simulated loop and fabric, and a worker that replays a profile.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/base/config.h>
#include <sluice/data/gate/gates.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/plan.h>
#include <sluice/observe/trace/recorder.h>
#include <sluice/transport/fabric/fabric.h>
#include <tools/sim/host_costs.h>
#include <tools/sim/host_loop.h>
#include <tools/sim/replayed_worker.h>
#include <tools/sim/sim_fabric.h>

namespace sluice::sim {

// The parts of a job that all of its hosts share.
struct SimulatedJobParts {
  EventQueue& events;
  SimHub& hub;
  const plan::Plan& plan;
  const algorithms::Algorithm& algorithm;
  const base::Config& config;
  const optimizer::OptimizerSpec& update;
  const HostCosts& costs;
  uint64_t shrink = 1;
};

class SimulatedHost final : private fabric::Receiver {
 public:
  // `memory` has the tensors by TensorId. `recorder` sees the path of slices; null: nobody does.
  // REQUIRES: the parts, the memory and the recorder outlive this.
  static Result<std::unique_ptr<SimulatedHost>> make(const SimulatedJobParts& parts, Rank rank,
                                                     std::span<const TensorMemory> memory,
                                                     trace::Recorder* recorder = nullptr);
  ~SimulatedHost() override;
  SimulatedHost(const SimulatedHost&) = delete;
  SimulatedHost& operator=(const SimulatedHost&) = delete;

  // Begins to train. REQUIRES: this rank is a worker.
  void train(ReplayedWorker::Script script);

  // Is lost for good: the other hosts see a crash.
  void die();
  // Another host has found that this rank is lost.
  void hearOfLoss(Rank rank);

  Rank rank() const { return rank_; }
  const HostLoop& loop() const { return loop_; }
  const algorithms::Strategy& strategy() const { return *strategy_; }
  const ReplayedWorker& worker() const { return *worker_; }  // REQUIRES: train()
  // Says what the worker waits for.
  std::string describeWait() const;

 private:
  // Charges the loop for sums and updates, and passes everything on to the recorder, if there is
  // one.
  class Observer final : public StageObserver {
   public:
    Observer(const SimulatedJobParts& parts, HostLoop& loop, trace::Recorder* recorder)
        : parts_(parts), loop_(loop), recorder_(recorder) {}
    void onStage(const StageEvent& event) override;
    void onWait(const WaitEvent& event) override;
    bool isNeeded() const { return recorder_ != nullptr || !parts_.costs.isFree(); }

   private:
    const SimulatedJobParts parts_;
    HostLoop& loop_;
    trace::Recorder* const recorder_;
  };

  SimulatedHost(const SimulatedJobParts& parts, Rank rank, trace::Recorder* recorder);
  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  void onPeerLost(Rank from, const Status& why) override;
  void onPeerLeft(Rank /*from*/) override {}

  const SimulatedJobParts parts_;
  const Rank rank_;
  HostLoop loop_;
  Observer observer_;
  gate::Gates gates_;
  std::unique_ptr<algorithms::Strategy> strategy_;
  std::unique_ptr<fabric::Fabric> fabric_;  // goes before the strategy
  std::optional<ReplayedWorker> worker_;
};

}  // namespace sluice::sim
