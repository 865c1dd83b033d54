// Measures steps as an algorithm that reduces sees them: the time at which each gradient comes, and
// the time that each reduction is under way. Belongs to its strategy's loop, which brings the time.
#pragma once

#include <optional>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/data/timing/drift.h>

namespace sluice::algorithms {

class StepTimer final {
 public:
  StepTimer(size_t tensors, size_t groups) : ready_(tensors), reduced_(groups) {}

  void ready(TensorId tensor, Step step, TimePoint now);
  void reduced(size_t group, Duration took) { reduced_[group].push_back(base::seconds(took)); }

  // Returns the medians of all steps since the last call; a pause of the machine does not move
  // them.
  timing::StepTimes takeMedians();

  // Sets the number of groups from now on. REQUIRES: nothing has been reduced since takeMedians()
  void setGroups(size_t groups) { reduced_.assign(groups, {}); }

 private:
  struct Begun {
    Step step{};
    TimePoint at;
  };
  std::optional<Begun> begun_;                // the latest step with a gradient
  std::vector<std::vector<double>> ready_;    // by TensorId, a number for each step
  std::vector<std::vector<double>> reduced_;  // by group, the same
};

}  // namespace sluice::algorithms
