// Finds the faults in a case file. Pure functions: no clock, no network, no log. Each fault gets
// one code, and what follows from it (a starved CPU makes a slow link) is not reported again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <tools/doctor/finding.h>
#include <tools/doctor/host_report.h>
#include <tools/probe/facts.h>

namespace sluice::doctor {

// A rank's wall clock minus rank 0's, in seconds.
struct ClockReading {
  double offset = 0;
  double error = 0;  // at most: half the time that the question took
};

// Everything that the doctor has seen of a job, by rank. A plain value.
struct CaseFile {
  std::vector<HostReport> hosts;
  std::vector<ClockReading> clocks;                          // empty: not read
  std::vector<std::map<uint32_t, std::string>> unreachable;  // whom each rank could not reach, why
  std::optional<probe::NetworkFacts> network;  // empty: ranks could not reach each other
};

std::vector<Finding> judge(const CaseFile& file);

// The parts of judge(), in its order.
std::vector<Finding> judgeVersions(const CaseFile& file);
std::vector<Finding> judgeClocks(const CaseFile& file);
std::vector<Finding> judgeReach(const CaseFile& file);

// REQUIRES, for all below: file.network
std::vector<Finding> judgeHosts(const CaseFile& file);
std::vector<Finding> judgeBuffers(const CaseFile& file);
// `excused` ranks have a fault that makes all their figures bad.
std::vector<Finding> judgeLinks(const CaseFile& file, const std::set<uint32_t>& excused);

// "rank 3 (node7)" or "ranks 3, 5-7". REQUIRES: not empty
std::string describe(const CaseFile& file, const std::vector<uint32_t>& ranks);

}  // namespace sluice::doctor
