#include <sluice/strategy/plain_step.h>

#include <vector>

#include <sluice/base/check.h>
#include <sluice/shard/optimizers.h>

namespace sluice::strategy {

void plainStep(DType dtype, std::span<std::byte> parameters, std::span<const std::byte> gradient,
               double rate) {
  const shard::Optimizer& sgd = shard::sgd();
  std::vector<double> values(sgd.hyperparameters().size());
  values[0] = rate;
  shard::OptimizerState state(sgd.name(), dtype, parameters.size() / sizeOf(dtype));
  const Status applied = applyStep(sgd, state, parameters, gradient, values);
  SLUICE_CHECK(applied.isOk(), applied.toString());
}

}  // namespace sluice::strategy
