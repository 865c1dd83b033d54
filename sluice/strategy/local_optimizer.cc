#include <sluice/strategy/local_optimizer.h>

#include <sluice/base/check.h>
#include <sluice/kernel/reduce.h>

namespace sluice::strategy {

LocalOptimizer::LocalOptimizer(const plan::Plan& plan, const shard::OptimizerSpec& update)
    : plan_(plan), optimizer_(*update.optimizer) {
  states_.reserve(plan.slices().size());
  for (const plan::Slice& slice : plan.slices())
    states_.emplace_back(optimizer_.name(), plan.model()[slice.tensor].dtype, slice.count);
}

void LocalOptimizer::step(const plan::Slice& slice, std::span<std::byte> parameters,
                          std::span<const std::byte> gradient, std::span<const double> values) {
  const DType dtype = plan_.model()[slice.tensor].dtype;
  wide_.resize(slice.count * sizeOf(kernel::accumulatorOf(dtype)));
  kernel::widen(dtype, wide_, gradient);
  const Status applied = applyStep(optimizer_, states_[index(slice.id)], parameters, wide_, values);
  SLUICE_CHECK(applied.isOk(), applied.toString());
}

}  // namespace sluice::strategy
