// Shows a decision: a table for people, JSON for programs, and a configuration file for the job.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include <tools/planner/cause.h>

namespace sluice::planner {

// Everything that `sluice plan` prints.
struct PlanReport {
  PlanChoice decision{};
  std::string cause{};
  Gains gains{};
};

nlohmann::ordered_json toJson(const Question& question, const PlanReport& answer);

// Returns the settings of the chosen plan, as --config reads them.
nlohmann::ordered_json configurationOf(const Question& question, const Prediction& chosen);

// Returns the sentence of cause, and the gains in words. The table is the caller's.
std::string summaryOf(const Question& question, const PlanReport& answer);

}  // namespace sluice::planner
