// Says in one sentence what limits the chosen plan, and what more bandwidth would gain.
#pragma once

#include <string>

#include <tools/planner/decision.h>

namespace sluice::planner {

// The iteration of the chosen plan if something were better.
struct Gains {
  double twiceTheRate = 0;  // seconds
  double tenTimesTheRate = 0;
  double halfTheBytes = 0;
  double freeHosts = 0;  // hosts that need no time for messages
};
Result<Gains> gainsOf(const Question& question, const Prediction& chosen);

// "fc6's 411 MB need 11.1 s on host c's link of 300 Mbit/s, and computing is 0.5 s: .."
std::string causeOf(const Question& question, const Prediction& chosen, const Gains& gains);

}  // namespace sluice::planner
