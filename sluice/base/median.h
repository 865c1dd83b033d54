// The value in the middle: what a figure is when pauses of the machine must not move it. Any
// thread.
#pragma once

#include <vector>

namespace sluice::base {

// The mean of the middle two, where there are two. REQUIRES: not empty
double median(std::vector<double> values);

}  // namespace sluice::base
