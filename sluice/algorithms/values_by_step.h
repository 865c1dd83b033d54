// Hyperparameters of an optimizer, by the first step they are for. A plain value.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include <sluice/base/types/ids.h>

namespace sluice::algorithms {

class ValuesByStep final {
 public:
  explicit ValuesByStep(std::vector<double> first) : values_{{Step{0}, std::move(first)}} {}

  void set(Step from, std::vector<double> values) {
    values_.insert_or_assign(from, std::move(values));
    if (values_.size() > kKept) values_.erase(values_.begin());
  }

  // REQUIRES: `step` is not more than two before the last that any were set for.
  const std::vector<double>& at(Step step) const {
    const auto after = values_.upper_bound(step);
    return (after == values_.begin() ? after : std::prev(after))->second;
  }

 private:
  // The slices of one worker are never more than two steps apart: a slice's part has left before
  // the next one of it, and all gradients of a step are handed over before the next step's.
  static constexpr size_t kKept = 4;
  std::map<Step, std::vector<double>> values_;
};

}  // namespace sluice::algorithms
