// Chooses among predicted plans. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <tools/planner/prediction.h>

namespace sluice::planner {

struct PlanChoice {
  std::vector<Prediction> predictions{};  // the fastest first; never empty
  std::vector<std::string> unknown{};     // the candidates that nothing could predict
  size_t choice = 0;                      // in `predictions`

  const Prediction& chosen() const { return predictions[choice]; }
};

// Takes the fastest exact plan. The default algorithm is taken if it is as fast within the error of
// a prediction; otherwise a plan with the same bits is. Fails if nothing exact was predicted.
Result<PlanChoice> decide(std::vector<Prediction> predictions, std::vector<std::string> unknown);

// Predicts every candidate and decides. `onCandidate` hears of each before it is predicted, and how
// many there are.
Result<PlanChoice> answer(
    const Question& question,
    const std::function<void(std::string_view name, size_t count)>& onCandidate);

// Returns the fastest prediction of a class; null for an empty class.
const Prediction* bestOf(const PlanChoice& decision, Exactness exactness);

// Says why the candidate of this name was not chosen. Refuses a name that no candidate has.
Result<std::string> whyNot(const PlanChoice& decision, std::string_view name);

}  // namespace sluice::planner
