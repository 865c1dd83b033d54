// Says in one sentence what limits the chosen plan, and what more bandwidth would gain.
#pragma once

#include <string>

#include <sluice/planner/decision.h>

namespace sluice::planner {

// "fc6's 411 MB on host c's link of 300 Mbit/s need 11.1 s of each iteration's 11.4 s: .."
std::string causeOf(const Question& question, const Prediction& chosen);

// The iteration of the chosen plan if something were better.
struct Gains {
  double twiceTheRate = 0;  // seconds
  double tenTimesTheRate = 0;
  double halfTheBytes = 0;
};
Result<Gains> gainsOf(const Question& question, const Prediction& chosen);

}  // namespace sluice::planner
