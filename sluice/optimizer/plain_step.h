// Any thread.
#pragma once

#include <cstddef>
#include <span>

#include <sluice/model.h>

namespace sluice::optimizer {

// x -= rate * gradient, by SGD without momentum and decay. The gradient is in accumulatorOf(dtype),
// as many elements as parameters.
void plainStep(DType dtype, std::span<std::byte> parameters, std::span<const std::byte> gradient,
               double rate);

}  // namespace sluice::optimizer
