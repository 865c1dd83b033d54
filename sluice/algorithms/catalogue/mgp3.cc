// MG-P3: tensors are merged as in MG-WFBP, but for a network in which what the next forward pass
// needs first overtakes the rest, and a group opens its gates as soon as it is there. So all groups
// may be under way at once, and merging weighs what a message costs against how early a layer can
// begin.
#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/reduction/layer_times.h>
#include <sluice/algorithms/reduction/reduction.h>
#include <sluice/algorithms/reduction/reduction_options.h>

namespace sluice::algorithms {
namespace {

Status chooseMgp3(const base::Config& config, plan::PlanSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const timing::Costs costs,
                          reductionCosts(config, spec.model, spec.roles));
  const auto merging = timing::mergeWithPriority(costs.layers, costs.wire);
  SLUICE_RETURN_IF_ERROR(chooseReduction(config, merging.groups, spec));
  setByPriority(spec);
  return base::ok();
}

constexpr auto kMgp3Options = joined(kReductionOptions, kMergingOptions);

}  // namespace

extern const Algorithm kMgp3{
    .name = "mgp3",
    .help = "all-reduces of merged tensors, by priority into the next forward (MG-P3)",
    .choose = chooseMgp3,
    .make = makeReduction,
    .options = kMgp3Options};

}  // namespace sluice::algorithms
