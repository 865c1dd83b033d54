// Wait-free backpropagation: one reduction per tensor, as gradients appear.
#include <sluice/base/options.h>
#include <sluice/strategy/algorithms/algorithm.h>
#include <sluice/strategy/dgc/allgather.h>
#include <sluice/strategy/dgc/dgc_options.h>
#include <sluice/strategy/dgc/settings.h>
#include <sluice/strategy/reduction/reduction.h>
#include <sluice/strategy/reduction/reduction_options.h>

namespace sluice::strategy {
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

}  // namespace sluice::strategy
