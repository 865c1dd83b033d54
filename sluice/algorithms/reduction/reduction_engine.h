// The engine of reduction.h, for reduction.cc and reduction_checkpoint.cc. Belongs to the fabric's
// loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/contribution.h>
#include <sluice/algorithms/reduction/reduction_group.h>
#include <sluice/algorithms/reduction/replanner.h>
#include <sluice/algorithms/reduction/urgent_fabric.h>
#include <sluice/algorithms/strategy.h>
#include <sluice/data/collective/fabric_collective.h>

namespace sluice::algorithms {

class Reduction final : public Strategy,
                        private Checkpoint,
                        private DelayedResults,
                        private StagingTargets,
                        private Takeover {
 public:
  // `costs` are those by which the groups were merged; with them the groups change as the costs do.
  Reduction(const Context& context, ReductionSettings settings, std::optional<timing::Costs> costs);
  ~Reduction() override;

  void contribute(const Contribution& contribution) override;
  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  Status setHyperparameters(const std::vector<double>& values, Step from) override;
  void whenIdle(const Done& done) override;
  void fail(const Status& why) override;
  void endAfter(uint64_t steps, const Status& why) override;
  std::string describeWait(TensorId tensor) const override;
  Statistics statistics() const override;

 private:
  // DelayedResults, with a delay; reduction.cc.
  size_t count() const override { return groups_.front().rounds().size(); }
  Status handOut(TensorId tensor, Step step) override;

  // StagingTargets: gradients come straight into the packing of their group, if they travel as they
  // are.
  bool has(TensorId tensor) const override;
  std::span<std::byte> targetFor(TensorId tensor) override;

  // Takeover. A codec's debt and delayed means would have to be taken over, too.
  bool isPossible() const override {
    return publishesMean() && settings_.codec == nullptr && settings_.delay == 0 &&
           !settings_.byPriority && onFabric_ != nullptr;
  }
  bool startsTogether() const override { return true; }
  void startAt(std::span<const Step> steps) override;

  // Checkpoint; reduction_checkpoint.cc.
  Result<std::vector<std::byte>> take() override;
  Status restore(std::span<const std::byte> bytes) override;

  void close(TensorId tensor, Step step);
  bool willReduce(const collective::Ticket& ticket) const;
  void reduceWhatMay();
  void reduce(size_t number, Round& round);
  void meanIsHere(size_t number, Step step);
  void openIfMay(size_t number);
  void useMeans(size_t number, size_t place, size_t bytesAtOnce);
  ResultBytes useMean(const ReductionGroup& group, size_t place, std::span<const std::byte> mean);
  void makeGroups();
  void agreeOnGroups();
  void changeGroups(const ReductionSettings& settings);
  ReductionState remember() const;
  void putBack(size_t number, const ReductionState& state,
               std::span<const TensorState* const> saved, bool isOurs);
  bool isIdle() const;
  void tellWhoWaits();
  Status checkState(const ReductionState& state, std::span<const TensorState* const> saved) const;

  bool publishesMean() const {
    return context_.update.optimizer->publishes() == optimizer::Publishes::kMeanGradient;
  }
  ReductionGroup& groupOf(TensorId tensor) { return groups_[groupOf_[index(tensor)]]; }
  const ReductionGroup& groupOf(TensorId tensor) const { return groups_[groupOf_[index(tensor)]]; }
  size_t placeOf(TensorId tensor) const { return groupOf(tensor).placeOf(tensor); }
  std::span<const Tensor> tensors() const { return context_.plan.model().tensors; }
  bool isAtBoundary(const ReductionGroup& group) const {
    return replanner_ && group.step() == replanner_->boundary();
  }
  void observe(Stage stage, TensorId tensor, Step step) const;

  const Context context_;
  ReductionSettings settings_;
  const std::unique_ptr<UrgentFabric> urgent_;  // null: messages go as they come
  const std::unique_ptr<collective::FabricCollective>
      onFabric_;  // null: somebody else's engine is used
  collective::Collective& collective_;
  std::vector<ReductionGroup> groups_;  // as in the settings
  std::vector<bool> opening_;           // by group: its means are being used, piece by piece
  std::vector<size_t> groupOf_;         // by TensorId
  std::vector<optimizer::OptimizerState> states_;  // by TensorId
  ValuesByStep values_;
  std::unique_ptr<Replanner> replanner_;  // null: the groups stay as they are
  size_t turn_ = 0;                       // the group that is reduced next
  uint64_t stepsClosed_ = 0;              // steps with a closed gate
  std::vector<uint64_t> nextSteps_;       // by group: the first step that can still be reduced
  size_t underWay_ = 0;
  std::vector<Done> whenIdle_;
  Status error_;
  uint64_t stepsToCome_ = std::numeric_limits<uint64_t>::max();
  Status end_;  // the reason that there are no more
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for what is posted
};

}  // namespace sluice::algorithms
