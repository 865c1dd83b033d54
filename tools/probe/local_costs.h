// Measures the CPU time that moving bytes takes on this host, plain and encrypted. Two ranks of a
// fabric of their own talk in this process, over the loopback interface. Any thread but a loop's; it waits.
#pragma once

#include <sluice/base/status.h>

namespace sluice::probe {

// Returns the CPU seconds that a rank spends on each GB that it sends or receives.
Result<double> measureLocalCost(bool encrypted);

}  // namespace sluice::probe
