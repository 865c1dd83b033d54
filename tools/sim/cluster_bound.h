// The line of a simulated cluster that limits every exchange. Pure functions.
#pragma once

#include <cstdint>

#include <sluice/data/plan/roles.h>
#include <tools/sim/segment_network.h>

namespace sluice::sim {

struct BusiestLine {
  // The least time per byte of the model that the line needs in one iteration, if every worker
  // pushes its gradient and gets the parameters, and servers share the slices equally.
  double secondsPerModelByte = 0;
  bool isUplink = false;  // of a rack; otherwise it is a host's
  uint32_t number = 0;    // of the host or rack
  Rate rate{};            // of the slower direction, frames and all
};
BusiestLine busiestLine(const NetworkOptions& network, const plan::Roles& roles);

}  // namespace sluice::sim
