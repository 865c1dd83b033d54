// One step of SGD without momentum and decay. Any thread.
#pragma once

#include <cstddef>
#include <span>

#include <sluice/model.h>

namespace sluice::optimizer {

// Does x -= rate * gradient for each parameter x. The gradient is in accumulatorOf(dtype), with as
// many elements as parameters.
void plainStep(DType dtype, std::span<std::byte> parameters, std::span<const std::byte> gradient,
               double rate);

}  // namespace sluice::optimizer
