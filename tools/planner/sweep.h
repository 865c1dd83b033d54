// Predicts some plans with other bandwidths and other numbers of hosts, for plots.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tools/planner/decision.h>

namespace sluice::planner {

struct SweepPoint {
  Rate rate{};
  uint32_t hosts = 0;
  Prediction prediction{};
};

// The best plan of each class at a quarter to ten times the rates.
Result<std::vector<SweepPoint>> sweepRates(const Question& question, const PlanChoice& decision,
                                           const std::function<void(std::string_view)>& onPoint);
// The sweep over 2 to 16 hosts, all alike.
Result<std::vector<SweepPoint>> sweepHosts(const Question& question, const PlanChoice& decision,
                                           const std::function<void(std::string_view)>& onPoint);

// Returns the question with every link so many times as fast.
Question withRatesTimes(Question question, double times);

nlohmann::ordered_json toJson(const std::vector<SweepPoint>& points);

}  // namespace sluice::planner
