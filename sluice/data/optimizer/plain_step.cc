#include <sluice/data/optimizer/plain_step.h>

#include <vector>

#include <sluice/base/check.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::optimizer {

void plainStep(DType dtype, std::span<std::byte> parameters, std::span<const std::byte> gradient,
               double rate) {
  const optimizer::Optimizer& sgd = optimizer::sgd();
  std::vector<double> values(sgd.hyperparameters().size());
  // sgd's first hyperparameter is the rate, and the others stay zero. Without momentum the
  // state has no buffers, so that a state made for one step costs nothing.
  values[0] = rate;
  optimizer::OptimizerState state(sgd.name(), dtype, parameters.size() / sizeOf(dtype));
  const Status applied = applyStep(sgd, state, parameters, gradient, values);
  SLUICE_CHECK(applied.isOk(), applied.toString());
}

}  // namespace sluice::optimizer
