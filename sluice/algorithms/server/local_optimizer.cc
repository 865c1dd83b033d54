#include <sluice/algorithms/server/local_optimizer.h>

#include <sluice/base/check.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::algorithms {

LocalOptimizer::LocalOptimizer(const plan::Plan& plan, const optimizer::OptimizerSpec& update)
    : plan_(plan), optimizer_(*update.optimizer) {
  states_.reserve(plan.slices().size());
  for (const plan::Slice& slice : plan.slices())
    states_.emplace_back(optimizer_.name(), plan.model()[slice.tensor].dtype, slice.count);
}

void LocalOptimizer::step(const plan::Slice& slice, std::span<std::byte> parameters,
                          std::span<const std::byte> gradient, std::span<const double> values) {
  const DType dtype = plan_.model()[slice.tensor].dtype;
  // The step is made in the accumulator's type: a 16-bit gradient times a small learning rate
  // would be rounded away.
  wide_.resize(slice.count * sizeOf(kernel::accumulatorOf(dtype)));
  kernel::widen(dtype, wide_, gradient);
  const Status applied = applyStep(optimizer_, states_[index(slice.id)], parameters, wide_, values);
  SLUICE_CHECK(applied.isOk(), applied.toString());
}

void LocalOptimizer::save(TensorId tensor, SavedTensor& saved) const {
  for (const plan::Slice& slice : plan_.slicesOf(tensor))
    saved.local.insert_or_assign(slice.offset, states_[index(slice.id)]);
}

void LocalOptimizer::restore(TensorId tensor, const SavedTensor* saved) {
  for (const plan::Slice& slice : plan_.slicesOf(tensor)) {
    const auto* state = saved == nullptr ? nullptr : findState(saved->local, slice);
    // A slice without a saved state begins anew instead of keeping the state it has: after
    // restore() nothing of the training before may be left.
    const optimizer::OptimizerState fresh(optimizer_.name(), plan_.model()[tensor].dtype,
                                          slice.count);
    states_[index(slice.id)] = state != nullptr ? *state : fresh;
  }
}

}  // namespace sluice::algorithms
