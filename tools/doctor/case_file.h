// Everything that the doctor has seen of a job, by rank. A plain value: the verdicts are functions
// of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tools/doctor/host_report.h>
#include <tools/probe/facts.h>

namespace sluice::doctor {

// A rank's wall clock minus rank 0's, in seconds.
struct ClockReading {
  double offset = 0;
  double error = 0;  // at most: half the time that the question took
};

struct CaseFile {
  std::vector<HostReport> hosts;
  std::vector<ClockReading> clocks;                          // empty: not read
  std::vector<std::map<uint32_t, std::string>> unreachable;  // whom each rank could not reach, why
  std::optional<probe::NetworkFacts> network;  // empty: ranks could not reach each other
};

}  // namespace sluice::doctor
