// The workers get the mean gradient back and run their own optimizer.
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::optimizer {
namespace {

class MeanGradient final : public Optimizer {
 public:
  std::string_view name() const override { return "mean-gradient"; }
  Publishes publishes() const override { return Publishes::kMeanGradient; }
  std::span<const Hyperparameter> hyperparameters() const override { return {}; }
  Status check(std::span<const double> /*values*/) const override { return base::ok(); }
  void apply(const Update& update) const override {
    kernel::narrow(update.state.dtype(), update.published, update.gradient, update.level);
  }
};

}  // namespace

const Optimizer& meanGradient() {
  static const MeanGradient kOptimizer;
  return kOptimizer;
}

}  // namespace sluice::optimizer
