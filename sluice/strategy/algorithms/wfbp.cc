// Wait-free backpropagation: one reduction per tensor, as gradients appear.
#include <sluice/strategy/algorithms/algorithm.h>
#include <sluice/strategy/reduction/reduction.h>
#include <sluice/strategy/reduction/reduction_options.h>

namespace sluice::strategy {
namespace {

Status chooseWfbp(const base::Config& config, plan::PlanSpec& spec) {
  std::vector<timing::Group> each;
  for (size_t t = 0; t < spec.model.tensors.size(); ++t) each.push_back({t, t});
  return chooseReduction(config, each, spec);
}

}  // namespace

extern const Algorithm kWfbp{
    .name = "wfbp",
    .help = "one all-reduce per tensor, as gradients appear (wait-free backpropagation)",
    .choose = chooseWfbp,
    .make = makeReduction,
    .options = kReductionOptions,
    .takesProcessGroup = true,
    .sendsOldestFirst = true};

}  // namespace sluice::strategy
