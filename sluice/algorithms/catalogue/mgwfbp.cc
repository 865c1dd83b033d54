// MG-WFBP: neighbouring tensors are merged where a message of their own would cost more than
// waiting for the next one. The choice follows from the layers' times and from what a reduction of
// M bytes costs, a + bM; while training these are measured, and tensors merged anew where that pays
// (replanner.h).
#include <array>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/reduction/layer_times.h>
#include <sluice/algorithms/reduction/reduction.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/reduction/regrouping.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

Status chooseMgwfbp(const base::Config& config, plan::PlanSpec& spec) {
  const int64_t replanSteps = config.integer(option::kReplanSteps);
  if (replanSteps < 0)
    return {Code::kInvalidArgument, "--replan-steps must not be negative; 0 means never"};
  SLUICE_ASSIGN_OR_RETURN(const timing::Costs costs,
                          reductionCosts(config, spec.model, spec.roles));
  SLUICE_RETURN_IF_ERROR(chooseReduction(config, mergeTensors(config, costs), spec));
  // The time of a reduction says what it costs only if no other is under way.
  const bool areInTurn = config.integer(option::kReductions) == 1;
  if (replanSteps > 0 && areInTurn) setReplanSteps(spec, static_cast<uint64_t>(replanSteps));
  return base::ok();
}

constexpr auto kMgwfbpOptions =
    joined(kReductionOptions, kMergingOptions, std::array{&option::kMerge, &option::kReplanSteps});

}  // namespace

extern const Algorithm kMgwfbp{.name = "mgwfbp",
                               .help = "all-reduces of tensors merged by measured times (MG-WFBP)",
                               .choose = chooseMgwfbp,
                               .make = makeReduction,
                               .options = kMgwfbpOptions,
                               .takesProcessGroup = true,
                               .sendsOldestFirst = true};

}  // namespace sluice::algorithms
