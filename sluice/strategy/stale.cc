#include <sluice/strategy/stale.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/kernel/reduce.h>
#include <sluice/shard/optimizers.h>
#include <sluice/shard/staleness.h>

namespace sluice::strategy {
namespace {

class Stale final : public Method {
 public:
  Stale(const Rooms& rooms, uint64_t bound, Pulls pulls)
      : plan_(rooms.plan),
        bound_(bound),
        pulls_(pulls),
        survivesLoss_(survivesLoss(rooms.plan.spec())),
        copies_(rooms.plan.slices().size()) {
    const auto known = rooms.update.optimizer->hyperparameters();
    const auto rate = std::ranges::find(known, "lr", &shard::Hyperparameter::name);
    SLUICE_CHECK(rate != known.end(), rooms.update.optimizer->name());
    rate_ = static_cast<size_t>(rate - known.begin());
    for (const SliceId id : plan_.slicesOn(rooms.fabric.rank()))
      served_.emplace(id, shard::Staleness(plan_.roles().workers.size(), bound));
  }

  Part part() const override { return Part::kGradient; }
  uint64_t period() const override { return 1; }

  Travel travel(SliceId slice, Step step) const override {
    const bool mayStay =
        pulls_ == Pulls::kWhenTooStale && shard::mayGoOn(index(step) + 1, copies_[index(slice)], bound_);
    return mayStay ? Travel::kPush : Travel::kAsk;
  }

  void finish(const WorkerSlice& worker, Travel travel, uint64_t lag) override {
    if (travel == Travel::kAsk) {
      copies_[index(worker.slice.id)] = index(worker.step) + 1 - lag;
    } else if (!worker.gradient.empty()) {
      ownStep(worker);
    }
  }

  std::vector<Reply> take(const ServerSlice& part, shard::Centre& centre) override {
    shard::Staleness& clocks = served_.at(part.slice.id);
    const size_t worker = plan_.roles().workerPosition(part.from);
    if (part.hasGradient) centre.step(part.slice.id, part.from, part.values);
    clocks.advance(worker);
    if (part.asks) clocks.wait(worker);
    return release(part.slice.id, centre);
  }

  // The result of step c is what lets a worker go on at clock c + 1.
  std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const override {
    if (bound_ == shard::kUnbounded) return std::nullopt;
    return stepsOfOther + bound_;
  }

  bool goesOnWithoutLost() const override { return bound_ == shard::kUnbounded || survivesLoss_; }

  std::vector<Reply> forget(SliceId slice, Rank lost, shard::Centre& centre) override {
    served_.at(slice).forget(plan_.roles().workerPosition(lost));
    return release(slice, centre);
  }

  std::string describeWait(SliceId slice) const override {
    const shard::Staleness& clocks = served_.at(slice);
    std::string waiting;
    std::string slow;
    const auto& workers = plan_.roles().workers;
    for (size_t w = 0; w < workers.size(); ++w) {
      if (clocks.isWaiting(w)) waiting += fmt::format(" {}", workers[w]);
      if (!clocks.isGone(w) && clocks.clock(w) == clocks.slowest()) slow += fmt::format(" {}", workers[w]);
    }
    if (waiting.empty()) return {};
    return fmt::format("keeps rank{} waiting for rank{}, at step {}", waiting, slow, clocks.slowest());
  }

 private:
  // Whoever waited for the slice and may go on now is to have it as it is.
  std::vector<Reply> release(SliceId slice, shard::Centre& centre) {
    shard::Staleness& clocks = served_.at(slice);
    const auto& workers = plan_.roles().workers;
    std::vector<Reply> replies;
    for (const size_t released : clocks.release()) {
      centre.copyToDesk(slice, workers[released]);
      replies.push_back({workers[released], clocks.clock(released) - clocks.slowest()});
    }
    return replies;
  }

  void ownStep(const WorkerSlice& worker) {
    const DType dtype = plan_.model()[worker.slice.tensor].dtype;
    const auto& sgd = shard::sgd();
    std::vector<double> values(sgd.hyperparameters().size());  // no momentum, no decay
    values[0] = worker.values[rate_];
    wide_.resize(worker.slice.count * sizeOf(kernel::accumulatorOf(dtype)));
    kernel::widen(dtype, wide_, worker.gradient);
    shard::OptimizerState state(sgd.name(), dtype, worker.slice.count);
    const Status applied = applyStep(sgd, state, worker.parameters, wide_, values);
    SLUICE_CHECK(applied.isOk(), applied.toString());
  }

  const plan::Plan& plan_;
  const uint64_t bound_;
  const Pulls pulls_;
  const bool survivesLoss_;
  size_t rate_ = 0;               // where the learning rate is among the hyperparameters
  std::vector<uint64_t> copies_;  // by SliceId: the slowest clock that this worker's copy knows
  std::map<SliceId, shard::Staleness> served_;
  std::vector<std::byte> wide_;  // a gradient, in its accumulator's type
};

}  // namespace

Result<std::unique_ptr<Strategy>> makeStale(const Rooms& rooms, uint64_t bound, Pulls pulls) {
  SLUICE_RETURN_IF_ERROR(checkUpdate(rooms));
  return makeAsynchronous(rooms, std::make_unique<Stale>(rooms, bound, pulls));
}

}  // namespace sluice::strategy
