// MG-WFBP: neighbouring tensors are merged where a message of their own would cost more than waiting for the
// next one. Which, follows from the layers' times and from what a reduction of M bytes costs, a + bM.
#include <sluice/base/options.h>
#include <sluice/strategy/algorithms.h>
#include <sluice/strategy/layer_times.h>
#include <sluice/strategy/reduction.h>

namespace sluice::strategy {
namespace {

Status chooseMgwfbp(const Config& config, plan::PlanSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const auto layers, layerTimes(config, spec.model));
  const plan::WireCost wire = reductionCost(config, spec.roles);
  const auto merging = config.text(option::kMerge) == "paper" ? plan::mergeByAlgorithm1(layers, wire)
                                                              : plan::mergeExactly(layers, wire);
  return chooseReduction(config, merging.groups, spec);
}

}  // namespace

const Algorithm kMgwfbp{"mgwfbp", "all-reduces of tensors merged by measured times (MG-WFBP)", chooseMgwfbp,
                        makeReduction};

}  // namespace sluice::strategy
