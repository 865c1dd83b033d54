// A strategy that outlives the loss of members. It holds one inner strategy for each epoch, and
// finishes the steps that were under way when a member was lost: it rolls forward, never back.
//
//   contribute   -> remembered, and handed to the inner strategy
//   result       -> kept, then moved to its place; the last of a tensor opens its gate
//   loss         -> suspend(): gradients are only remembered
//   new epoch    -> enter(): members tell each other which results they have (result_report.h).
//                   A result that any member has stands, and is handed to those that lack it. Steps
//                   without one are taken up by a new inner strategy, over the members that are left.
//
// A gradient is intact or replaced, never half of each: the result of a slice lands beside it and is
// moved when it is whole. docs/members.md has the argument.
//
// A gradient on a device comes slice by slice to host memory, and stays there until its result has
// replaced it. So neither a result that is handed over nor a slice that is summed again needs the
// device: the context's sink hears of every result once, whatever epoch it is from.
//
// Belongs to the fabric's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/elastic/kept_results.h>
#include <sluice/algorithms/elastic/result_report.h>
#include <sluice/algorithms/strategy.h>
#include <sluice/data/gate/gates.h>
#include <sluice/transport/fabric/deferred_lanes.h>

namespace sluice::algorithms {

class ElasticStrategy final : public Strategy, private ResultSink, private ResultPlaces {
 public:
  using Make = std::function<Result<std::unique_ptr<Strategy>>(const Context&)>;

  // Told when steps begin in an epoch: the first step of each slice that is summed in it, by
  // SliceId.
  using OnBegun = std::function<void(const std::vector<Step>& firstSteps)>;

  // Begins the first epoch. `make` makes the inner strategy of every epoch. Refuses an algorithm
  // that cannot take over steps. REQUIRES: as Context; the plan and the fabric of an epoch stay until
  // enter() begins the next one.
  static Result<std::unique_ptr<ElasticStrategy>> begin(const Context& context, Make make,
                                                        OnBegun onBegun = {});
  ~ElasticStrategy() override;

  // A member is lost: until enter(), gradients are only remembered, and errors of the inner
  // strategy count for nothing. Results that are on their way may still come.
  void suspend();

  // A new epoch begins. The plan has the slices of the first one. REQUIRES: suspend() was called,
  // the fabric of the epoch before is gone, and so is all that it had posted to the loop.
  Status enter(const plan::Plan& plan, fabric::Fabric& fabric);

  // Returns the last result of a slice that this member has.
  const LastResult& lastResult(SliceId slice) const { return kept_.last(slice); }

  void contribute(const Contribution& contribution) override;
  void contributeSlice(const SliceContribution& contribution) override;
  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  Status setHyperparameters(const std::vector<double>& values, Step from) override;
  std::string describeWait(TensorId tensor) const override;
  Statistics statistics() const override;
  void whenIdle(const Done& done) override;
  std::set<Rank> ahead() const override;
  void fail(const Status& why) override;
  void endAfter(uint64_t steps, const Status& why) override;

 private:
  enum class Phase : uint8_t {
    kTraining,
    kSuspended,   // a member is lost
    kExchanging,  // reports or results of other members are missing
  };
  struct OneTensor {
    std::optional<Step> step;  // handed over, in part at least; empty: every gate so far is open
    bool hasGradient = false;
    size_t come = 0;                 // slices of that step's gradient
    uint64_t nextInside = 0;         // the step that the inner strategy takes next
    bool isInside = false;           // the inner strategy has not opened the gate of that step
    size_t missing = 0;              // slices that the inner strategy gets in that step
    size_t given = 0;                // of them, those that it has got
    std::vector<std::byte> aside{};  // for results of slices that stand already
  };

  ElasticStrategy(const Context& context, Make make, OnBegun onBegun);
  Status makeInner();
  Context innerContext();

  // Hands the tensor's gradient to the inner strategy, if it is its turn.
  void handOn(TensorId tensor);
  void giveInside(TensorId tensor, bool hasGradient);
  void giveSliceInside(const plan::Slice& slice);
  bool isWhole(TensorId tensor) const {
    return tensors_[index(tensor)].come == plan_->slicesOf(tensor).size();
  }
  void insideIsOpen(TensorId tensor, const Status& status);
  void openIfDone(TensorId tensor);
  bool isDone(const plan::Slice& slice, Step step) const {
    return kept_.last(slice.id).steps > index(step);
  }
  uint64_t resultsOf(TensorId tensor) const;  // that all of its slices have
  void moveToPlace(const plan::Slice& slice, std::span<const std::byte> bytes);
  // The result of a slice is in its tensor's memory.
  void tellSink(const plan::Slice& slice, Step step, Rank from);

  // The exchange; exchange.cc.
  Result<fabric::Landing> landReport(Rank from, const wire::Header& header);
  Result<fabric::Landing> landHandedOver(Rank from, const wire::Header& header);
  void takeReport(Rank from, std::span<const std::byte> bytes);
  void agreeIfComplete();
  Status beginSlice(const plan::Slice& slice);
  void handOver(const plan::Slice& slice, Rank to);
  void takeHandedOver(const plan::Slice& slice);
  void resumeIfComplete();
  std::string describeExchange() const;

  // ResultSink and ResultPlaces, for the inner strategy.
  void onResult(const SliceResult& result) override;
  void onNoResult(TensorId tensor, Step step) override;
  std::span<std::byte> placeFor(const plan::Slice& slice, Step step) override;

  const Context outer_;  // of the first epoch; its plan and fabric are not used after it
  const Make make_;
  const OnBegun onBegun_;
  const plan::Plan* plan_;
  fabric::Fabric* fabric_;
  Phase phase_ = Phase::kTraining;
  KeptResults kept_;
  std::vector<OneTensor> tensors_;         // by TensorId
  std::vector<bool> hasCome_;              // by SliceId: its gradient of the tensor's step
  std::vector<TensorMemory> innerMemory_;  // by TensorId
  std::unique_ptr<gate::Gates> innerGates_;
  std::unique_ptr<Strategy> inner_;
  fabric::DeferredLanes deferred_;  // lanes with messages for the inner strategy to come

  // Of the exchange that is under way.
  std::vector<ResultReport> reports_;  // by rank; empty: not here yet
  std::vector<AgreedResult> agreed_;   // by SliceId; empty: not agreed yet
  std::set<Rank> reporting_;           // ranks whose report is landing
  size_t awaited_ = 0;                 // results that others hand over
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for what the fabric completes
};

}  // namespace sluice::algorithms
