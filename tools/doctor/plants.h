// Faults that a test cannot make from outside: a rank reports another value than it has measured.
// The verdicts are not touched. Plain values.
#pragma once

#include <string>
#include <vector>

#include <sluice/base/status.h>
#include <tools/doctor/host_report.h>
#include <tools/probe/compute.h>

namespace sluice::doctor {

struct Plants {
  double clockSeconds = 0;   // added to the wall clock
  double computeFactor = 1;  // of the time that the fixed work takes
  std::string version;       // in place of the real one
  std::string torch;
};

// Takes "clock=+90s@2", "version=0.0.1@1", "torch=1.9@3" and "compute=2.5@3"; keeps those for
// `rank`.
Result<Plants> parsePlants(const std::vector<std::string>& texts, uint32_t rank);

}  // namespace sluice::doctor
