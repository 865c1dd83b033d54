// Examines a job before it trains: all its ranks call examine() together, as a launcher would start
// a training. Rank 0 gets everything; a rank that cannot join gets what it knows itself. For the
// command `sluice doctor`, on its main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sluice/base/config.h>
#include <tools/doctor/finding.h>
#include <tools/doctor/verdicts.h>

namespace sluice::doctor {

struct Examination {
  uint32_t rank = 0;
  uint32_t worldSize = 1;
  bool hasMet = false;  // all ranks came
  std::string missing;  // if some did not come, or went: what rank 0 says
  std::vector<Finding> findings;
  CaseFile file;  // empty if the ranks have not met
  double seconds = 0;

  // True iff this rank is to print: rank 0, and a rank that could not reach it.
  bool speaks() const { return rank == 0 || !findings.empty(); }
};

Result<Examination> examine(const base::Config& config, const base::Config::Values& environment,
                            const std::vector<std::string>& plants);

}  // namespace sluice::doctor
