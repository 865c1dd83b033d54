// The list of server-side optimizers: sgd, adam, adamw, and mean-gradient, which leaves the step to
// the worker.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <sluice/base/status.h>
#include <sluice/data/optimizer/optimizer.h>
#include <sluice/model.h>

namespace sluice::optimizer {

const Optimizer& meanGradient();
const Optimizer& sgd();
const Optimizer& adam();
const Optimizer& adamW();

// As sgd(), with the same state, but publishes the direction of the step instead of making it: the
// gradient with weight decay and momentum. `published` holds the parameters before. Not in the list.
const Optimizer& sgdDirection();

// Makes one step of SGD without momentum and decay: x -= rate * gradient for each parameter x. The
// gradient is in accumulatorOf(dtype), with as many elements as parameters.
void plainStep(DType dtype, std::span<std::byte> parameters, std::span<const std::byte> gradient,
               double rate);

// Returns all optimizers: a new one is a file of its own, a line above and a line in this list.
std::span<const Optimizer* const> optimizers();

// Finds an optimizer by name, never null; an unknown name is an error that lists the known ones.
Result<const Optimizer*> findOptimizer(std::string_view name);

}  // namespace sluice::optimizer
