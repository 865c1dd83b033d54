// The flags of `sluice plan`, and the two halves of it that a plan alone and a plan as a job share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <tools/planner/prediction.h>

namespace sluice::cli {

struct PlanFlags {
  std::string profile;
  std::string network;
  std::string rate;
  std::string latency;
  std::string computeTime;
  std::string cpu;
  std::string why;
  std::string out;
  std::string json;
  std::string profileOut = "profile.json";
  uint32_t hosts = 0;  // 0: not given
  uint32_t steps = 10;
  std::string only;
  bool showsAll = false;
  bool sweeps = false;
  std::vector<std::string> script;  // and its arguments
};

// Reads the model, and its times, for a cluster.
Result<planner::Question> questionFor(const PlanFlags& flags, const base::Config& config,
                                      planner::Cluster cluster);

// Predicts, decides and prints.
Result<int> answerAndPrint(const PlanFlags& flags, const planner::Question& question);

// The ranks of a launcher measure the network together, and the script's model if there is one;
// rank 0 prints.
Result<int> planAsJob(PlanFlags flags, const base::Config& config);

}  // namespace sluice::cli
