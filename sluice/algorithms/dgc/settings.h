// Deep gradient compression (codec/dgc.h), as algorithms share it: its options in the plan, and
// what it takes of SGD. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <sluice/algorithms/context.h>

namespace sluice::algorithms {

struct DgcSettings {
  double sparsity = 0;
  uint64_t stepsPerStage = 0;  // of the warm-up
  double clip = 0;             // the largest norm of one worker's gradient; 0: any
  bool masksMomentum = true;
  bool keepsRest = true;
  uint64_t denseBelow = 0;  // tensors with fewer elements are sent whole
};

// Takes the options that begin with dgc. Refuses tensors that are not f32, and another codec
// besides.
Status chooseDgc(const base::Config& config, plan::PlanSpec& spec);

// True iff the plan was made with chooseDgc().
bool isSparse(const plan::PlanSpec& spec);

// Returns the plan's settings. The update is SGD, whose momentum is made before compression:
// refuses others, and what of SGD it does not know. `workersPerStep`: the number of workers whose
// mean is one step, all of them or, with asp and ssp, one. REQUIRES: isSparse(context.plan.spec())
Result<DgcSettings> settingsOfDgc(const Context& context, size_t workersPerStep);

// Checks values that are set later, as settingsOfDgc() does; also rejects a changed momentum.
Status checkDgcValues(std::span<const double> values, const optimizer::OptimizerSpec& atStart);

// Returns one of SGD's hyperparameters.
double sgdValue(std::span<const double> values, std::string_view name);

}  // namespace sluice::algorithms
