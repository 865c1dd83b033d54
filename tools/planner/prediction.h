// Predicts the time of an iteration for one candidate: by simulation of the real code, or, where
// that would take too long, by rack or by the formulas of merging.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <sluice/base/config.h>
#include <sluice/data/timing/profile.h>
#include <tools/planner/candidate.h>
#include <tools/planner/cluster.h>
#include <tools/sim/host_costs.h>

namespace sluice::planner {

// The training that is planned, and the machines for it.
struct Question {
  std::string profile{};      // a built-in one, or a file
  Profile model{};            // the same, read
  double computeSeconds = 0;  // of one forward and backward pass
  double otherSeconds = 0;    // of a step, outside the passes
  Cluster cluster{};
  sim::HostCosts costs{};
  base::Config config{};                // settings that hold for all candidates
  Exactness worst = Exactness::kLossy;  // candidates that are less exact are left out
  std::function<bool()> isInterrupted = [] { return false; };
};

enum class Means : uint8_t { kSimulation, kRacks, kFormula };
std::string_view name(Means means);

struct Prediction {
  Candidate candidate{};
  Means means = Means::kSimulation;
  double iterationSeconds = 0;
  double boundSeconds = 0;      // no plan that sends everything in its step is faster
  bool sendsEverything = true;  // so the bound holds
  double bytes = 0;             // of an iteration, that leave all hosts; 0: not known
  double messages = 0;          // the same
  double busiestLoop = 0;       // the share of time that the busiest host works for messages
  double memoryBytes = 0;       // of a rank, besides the model, an estimate
};

// Returns empty if nothing can predict this candidate for so many hosts.
Result<std::optional<Prediction>> predict(const Question& question, const Candidate& candidate);

// Returns the settings for all candidates: the question's, with the times that merging goes by.
Result<base::Config> configFor(const Question& question);

}  // namespace sluice::planner
