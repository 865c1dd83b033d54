// The value in the middle, for figures that pauses of the machine must not move. Any thread.
#pragma once

#include <vector>

namespace sluice::base {

// Returns the value in the middle, or the mean of the middle two if there are two. REQUIRES: not
// empty
double median(std::vector<double> values);

}  // namespace sluice::base
