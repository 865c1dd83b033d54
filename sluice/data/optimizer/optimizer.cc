#include <sluice/data/optimizer/optimizer.h>

#include <cmath>

#include <sluice/data/kernel/reduce.h>

namespace sluice::optimizer {

Status checkValues(const Optimizer& optimizer, std::span<const double> values) {
  const auto known = optimizer.hyperparameters();
  if (values.size() != known.size()) {
    return {Code::kInvalidArgument,
            fmt::format("{} takes {} hyperparameters, not {}; run the same sluice on all ranks",
                        optimizer.name(), known.size(), values.size())};
  }
  for (size_t i = 0; i < values.size(); ++i) {
    // This comes before the optimizer's own checks, most of which are comparisons: NaN fails
    // every comparison, and so would pass for a value within its limits.
    if (!std::isfinite(values[i])) {
      return {Code::kInvalidArgument, fmt::format("{} {} is {}; give a finite number",
                                                  optimizer.name(), known[i].name, values[i])};
    }
  }
  return optimizer.check(values);
}

Status applyStep(const Optimizer& optimizer, OptimizerState& state, std::span<std::byte> published,
                 std::span<const std::byte> gradient, std::span<const double> values,
                 kernel::Level level) {
  // Within a job the optimizer never changes, so only a checkpoint can have brought a state of
  // another one.
  if (state.optimizer() != optimizer.name()) {
    return {Code::kInvalidArgument,
            fmt::format("the checkpoint has the state of {}, but the job's optimizer is {}; use "
                        "the optimizer of the checkpoint, or leave its state out",
                        state.optimizer(), optimizer.name())};
  }
  SLUICE_RETURN_IF_ERROR(checkValues(optimizer, values));
  SLUICE_CHECK(published.size() == state.elements() * sizeOf(state.dtype()), published.size(),
               state.elements());
  SLUICE_CHECK(gradient.size() == state.elements() * sizeOf(kernel::accumulatorOf(state.dtype())),
               gradient.size(), state.elements());
  // The step is counted first: Adam's corrections use the number of this step, and would divide
  // by zero if it were 0.
  state.countStep();
  optimizer.apply({state, published, gradient, values, level});
  return base::ok();
}

}  // namespace sluice::optimizer
