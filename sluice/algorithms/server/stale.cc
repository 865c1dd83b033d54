#include <sluice/algorithms/server/stale.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <sluice/data/shard/staleness.h>

namespace sluice::algorithms {
namespace {

class Stale final : public AnswerPolicy {
 public:
  Stale(const Context& context, std::unique_ptr<StaleForm> form, uint64_t bound, Pulls pulls)
      : plan_(context.plan),
        form_(std::move(form)),
        bound_(bound),
        pulls_(pulls),
        survivesLoss_(survivesLoss(context.plan.spec())),
        copies_(context.plan.slices().size()) {
    for (const SliceId id : plan_.slicesOn(context.fabric.rank()))
      served_.emplace(id, shard::Staleness(plan_.roles().workers.size(), bound));
  }

  PayloadFormat& format() override { return form_->format(); }
  Traits traits() const override {
    return {.serversStep = true,
            .copiesCentre = true,
            .survivesLoss = bound_ == shard::kUnbounded || survivesLoss_};
  }
  Status checkValues(std::span<const double> values) const override {
    return form_->checkValues(values);
  }

  Travel travel(SliceId slice, Step step) const override {
    // A worker that pushes without asking goes on with its own copy. The copy grows older with
    // each step, and at the bound it must be renewed: the test is made for the step after this
    // one, since that is the step which would read the copy.
    const bool mayStay = pulls_ == Pulls::kWhenTooStale &&
                         shard::mayGoOn(index(step) + 1, copies_[index(slice)], bound_);
    return mayStay ? Travel::kPush : Travel::kAsk;
  }
  bool mayCome(bool /*hasPart*/, bool asks) const override {
    return asks || pulls_ == Pulls::kWhenTooStale;
  }

  Result<bool> finish(const WorkerSlice& worker, Travel travel, uint64_t lag) override {
    if (travel != Travel::kAsk) return form_->ownStep(worker);
    SLUICE_RETURN_IF_ERROR(form_->takeAnswer(worker));
    // The answer says how far the slowest worker lags behind this one. The copy holds
    // everything up to that clock, so it may serve until the bound counts from there.
    copies_[index(worker.slice.id)] = index(worker.step) + 1 - lag;
    return true;
  }

  Result<std::vector<Rank>> take(const ServerSlice& part) override {
    shard::Staleness& clocks = served_.at(part.slice.id);
    const size_t worker = plan_.roles().workerPosition(part.from);
    if (part.hasPart) SLUICE_RETURN_IF_ERROR(form_->step(part));
    // The clock moves even without a gradient: it counts steps of the worker, not parts. Otherwise
    // a worker without gradients would hold up all the others.
    clocks.advance(worker);
    if (part.asks) clocks.wait(worker);
    return release(part.slice.id);
  }

  uint64_t prepareAnswer(SliceId slice, Rank to) override {
    form_->prepareAnswer(slice, to);
    const shard::Staleness& clocks = served_.at(slice);
    const uint64_t clock = clocks.clock(plan_.roles().workerPosition(to));
    return clock - std::min(clock, clocks.slowest());  // a lost worker may be behind them all
  }

  // A worker goes on at clock c + 1 with the result of step c.
  std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const override {
    if (bound_ == shard::kUnbounded) return std::nullopt;
    return stepsOfOther + bound_;
  }

  std::vector<Rank> forget(SliceId slice, Rank lost) override {
    served_.at(slice).forget(plan_.roles().workerPosition(lost));
    return release(slice);
  }

  std::string describeWait(SliceId slice) const override {
    const shard::Staleness& clocks = served_.at(slice);
    std::string waiting;
    std::string slow;
    const auto& workers = plan_.roles().workers;
    for (size_t w = 0; w < workers.size(); ++w) {
      if (clocks.isWaiting(w)) waiting += fmt::format(" {}", workers[w]);
      if (!clocks.isGone(w) && clocks.clock(w) == clocks.slowest())
        slow += fmt::format(" {}", workers[w]);
    }
    if (waiting.empty()) return {};
    return fmt::format("keeps rank{} waiting for rank{}, at step {}", waiting, slow,
                       clocks.slowest());
  }

  HeldCentre* centre() override { return form_.get(); }
  OwnState* own() override { return form_->own(); }

 private:
  // Returns the workers that waited for the slice and may go on now.
  std::vector<Rank> release(SliceId slice) {
    std::vector<Rank> workers;
    for (const size_t released : served_.at(slice).release())
      workers.push_back(plan_.roles().workers[released]);
    return workers;
  }

  const plan::Plan& plan_;
  const std::unique_ptr<StaleForm> form_;
  const uint64_t bound_;
  const Pulls pulls_;
  const bool survivesLoss_;
  std::vector<uint64_t> copies_;  // by SliceId: the slowest clock that this worker's copy knows
  std::map<SliceId, shard::Staleness> served_;
};

}  // namespace

std::unique_ptr<Strategy> makeStale(const Context& context, std::unique_ptr<StaleForm> form,
                                    uint64_t bound, Pulls pulls) {
  return makeAnswering(context, std::make_unique<Stale>(context, std::move(form), bound, pulls));
}

}  // namespace sluice::algorithms
