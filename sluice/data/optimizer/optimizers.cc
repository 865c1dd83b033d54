#include <sluice/data/optimizer/optimizers.h>

#include <array>
#include <string>
#include <vector>

#include <sluice/base/check.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::optimizer {
namespace {

// The workers get the mean gradient back and run their own optimizer.
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

std::span<const Optimizer* const> optimizers() {
  static const std::array<const Optimizer*, 4> kAll{
      &meanGradient(),
      &sgd(),
      &adam(),
      &adamW(),
  };
  return kAll;
}

Result<const Optimizer*> findOptimizer(std::string_view name) {
  std::string known;
  for (const Optimizer* optimizer : optimizers()) {
    if (optimizer->name() == name) return optimizer;
    known += known.empty() ? "" : ", ";
    known += optimizer->name();
  }
  return Status(Code::kInvalidArgument,
                fmt::format("there is no optimizer '{}'; use one of {}", name, known));
}

void plainStep(DType dtype, std::span<std::byte> parameters, std::span<const std::byte> gradient,
               double rate) {
  const Optimizer& plain = sgd();
  std::vector<double> values(plain.hyperparameters().size());
  // sgd's first hyperparameter is the rate, and the others stay zero. Without momentum the
  // state has no buffers, so that a state made for one step costs nothing.
  values[0] = rate;
  OptimizerState state(plain.name(), dtype, parameters.size() / sizeOf(dtype));
  const Status applied = applyStep(plain, state, parameters, gradient, values);
  SLUICE_CHECK(applied.isOk(), applied.toString());
}

}  // namespace sluice::optimizer
