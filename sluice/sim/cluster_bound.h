// The line of a simulated cluster that limits every exchange. Pure functions.
#pragma once

#include <sluice/plan/roles.h>
#include <sluice/sim/segment_network.h>

namespace sluice::sim {

// Returns the least time per byte of the model that the busiest line needs in one iteration, if
// every worker pushes its gradient and gets the parameters, and servers share the slices equally.
// The busiest line is that of a host, or a rack's uplink.
double secondsPerModelByte(const NetworkOptions& network, const plan::Roles& roles);

}  // namespace sluice::sim
