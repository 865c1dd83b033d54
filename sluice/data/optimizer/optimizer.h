// A server-side optimizer turns the mean gradient of a slice into the values that its workers get
// back. An Optimizer is stateless and constant; its memory of one slice is an OptimizerState. Pure
// calculation: any thread, one call per state at a time.
//
// A new optimizer is one new file and its line in optimizers.h and .cc. Its formulas are those of
// PyTorch's _single_tensor_* functions, in their order of operations, but without fused
// multiply-adds (which PyTorch uses on CPUs that have them), so results agree to rounding and not
// to the bit.
//
// f32 and f64 are calculated in their own precision. bf16 and f16 parameters are read into f32,
// updated there with the unrounded f32 mean gradient and f32 state, and rounded once; PyTorch
// rounds after every operation and keeps 16-bit state, so ours is the more precise.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <sluice/base/status.h>
#include <sluice/data/kernel/level.h>
#include <sluice/data/optimizer/optimizer_state.h>
#include <sluice/model.h>

namespace sluice::optimizer {

// Switches (Nesterov) are 0 or 1.
struct Hyperparameter final {
  std::string_view name;
  double initial;
};

enum class Publishes { kParameters, kMeanGradient };

struct Update final {
  OptimizerState& state;  // its steps() already counts this step
  std::span<std::byte>
      published;  // the parameters, updated in place; or where the mean gradient goes
  std::span<const std::byte> gradient;  // the mean, in accumulatorOf(state.dtype())
  std::span<const double> values;  // this step's hyperparameters, in the order of hyperparameters()
  kernel::Level level;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::string_view name() const = 0;
  virtual Publishes publishes() const = 0;
  virtual std::span<const Hyperparameter> hyperparameters() const = 0;
  // Returns an error if one of the values means nothing; it says which one. There are as many
  // values as hyperparameters(), all finite.
  virtual Status check(std::span<const double> values) const = 0;
  // REQUIRES: check(update.values); sizes that fit state.elements(); spans that do not overlap
  virtual void apply(const Update& update) const = 0;
};

// Checks `values` against the optimizer's list and its own rules.
Status checkValues(const Optimizer& optimizer, std::span<const double> values);

// Makes one step of one slice. The values travel with the step, because schedulers change them. On
// an error nothing has changed. Sizes that do not fit the state are a bug of the caller.
Status applyStep(const Optimizer& optimizer, OptimizerState& state, std::span<std::byte> published,
                 std::span<const std::byte> gradient, std::span<const double> values,
                 kernel::Level level = kernel::bestLevel());

}  // namespace sluice::optimizer
