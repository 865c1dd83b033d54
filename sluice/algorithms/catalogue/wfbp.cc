// Wait-free backpropagation: one reduction per tensor, as gradients appear.
#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/dgc/allgather.h>
#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/dgc/settings.h>
#include <sluice/algorithms/reduction/reduction.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

Status chooseWfbp(const base::Config& config, plan::PlanSpec& spec) {
  if (config.isOn(option::kDgc)) SLUICE_RETURN_IF_ERROR(chooseDgc(config, spec));
  std::vector<timing::Group> each;
  for (size_t t = 0; t < spec.model.tensors.size(); ++t) each.push_back({t, t});
  return chooseReduction(config, each, spec);
}

Result<std::unique_ptr<Strategy>> makeWfbp(const Context& context) {
  if (!isSparse(context.plan.spec())) return makeReduction(context);
  return makeSparseAllgather(context, Sends::kAsReady);
}

constexpr auto kWfbpOptions = joined(kReductionOptions, kDgcOptions);

}  // namespace

extern const Algorithm kWfbp{
    .name = "wfbp",
    .help = "one all-reduce per tensor, as gradients appear (wait-free backpropagation)",
    .choose = chooseWfbp,
    .make = makeWfbp,
    .options = kWfbpOptions,
    .takesProcessGroup = true,
    .sendsOldestFirst = true};

}  // namespace sluice::algorithms
