// asp and ssp with gradients as they are: the server's optimizer makes the steps. SGD's momentum may
// also be at the workers, or left out.
#include <algorithm>

#include <sluice/algorithms/server/plain_format.h>
#include <sluice/algorithms/server/stale.h>
#include <sluice/base/check.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::algorithms {
namespace {

class PlainStale final : public StaleForm {
 public:
  PlainStale(const Context& context, MomentumAt momentum)
      : plan_(context.plan),
        known_(context.update.optimizer->hyperparameters()),
        momentum_(momentum),
        format_(context, momentum == MomentumAt::kWorkers ? PlainFormat::Part::kDirection
                                                          : PlainFormat::Part::kGradient) {
    const auto rate = std::ranges::find(known_, "lr", &optimizer::Hyperparameter::name);
    SLUICE_CHECK(rate != known_.end(), context.update.optimizer->name());
    rate_ = static_cast<size_t>(rate - known_.begin());
  }

  PayloadFormat& format() override { return format_; }
  Status checkValues(std::span<const double> /*values*/) const override { return base::ok(); }

  Status step(const ServerSlice& part) override {
    format_.centre().step(part.slice.id, part.from, valuesAtServer(part.values));
    return base::ok();
  }
  void prepareAnswer(SliceId slice, Rank worker) override {
    format_.centre().copyToDesk(slice, worker);
  }

  Status takeAnswer(const WorkerSlice& /*worker*/) override {
    return base::ok();
  }  // it is in its place

  Result<bool> ownStep(const WorkerSlice& worker) override {
    if (worker.gradient.empty()) return false;
    const DType dtype = plan_.model()[worker.slice.tensor].dtype;
    wide_.resize(worker.slice.count * sizeOf(kernel::accumulatorOf(dtype)));
    kernel::widen(
        dtype, wide_,
        momentum_ == MomentumAt::kWorkers ? format_.direction(worker.slice.id) : worker.gradient);
    optimizer::plainStep(dtype, worker.parameters, wide_, worker.values[rate_]);
    return true;
  }

  Held held(SliceId slice) const override {
    return {format_.centre().parameters(slice), &format_.centre().state(slice)};
  }
  void hold(SliceId slice, const Held& held) override {
    format_.centre().setParameters(slice, held.parameters);
    const optimizer::OptimizerState& here = format_.centre().state(slice);
    format_.centre().setState(
        slice, held.optimizer != nullptr
                   ? *held.optimizer
                   : optimizer::OptimizerState(here.optimizer(), here.dtype(), here.elements()));
  }
  OwnState* own() override { return format_.own(); }

 private:
  // A worker's direction has decay and momentum inside; without momentum a step has its decay only.
  std::vector<double> valuesAtServer(std::span<const double> values) const {
    std::vector<double> here(values.begin(), values.end());
    if (momentum_ == MomentumAt::kServer) return here;
    for (size_t i = 0; i < here.size(); ++i) {
      const bool isKept = i == rate_ || (momentum_ == MomentumAt::kNone &&
                                         known_[i].name == std::string_view("weight_decay"));
      if (!isKept) here[i] = 0;
    }
    return here;
  }

  const plan::Plan& plan_;
  const std::span<const optimizer::Hyperparameter> known_;
  const MomentumAt momentum_;
  PlainFormat format_;
  size_t rate_ = 0;              // the learning rate's place among the hyperparameters
  std::vector<std::byte> wide_;  // a gradient, in its accumulator's type
};

}  // namespace

std::unique_ptr<StaleForm> makePlainStale(const Context& context, MomentumAt momentum) {
  return std::make_unique<PlainStale>(context, momentum);
}

}  // namespace sluice::algorithms
