// AR-SGD: one reduction of the whole gradient after backward. MG-WFBP calls it SyncEASGD.

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/dgc/allgather.h>
#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/dgc/settings.h>
#include <sluice/algorithms/reduction/reduction.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

Status chooseAllreduce(const base::Config& config, plan::PlanSpec& spec) {
  if (config.isOn(option::kDgc)) SLUICE_RETURN_IF_ERROR(chooseDgc(config, spec));
  const timing::Group everything{0, spec.model.tensors.size() - 1};
  return chooseReduction(config, std::span(&everything, 1), spec);
}

Result<std::unique_ptr<Strategy>> makeAllreduce(const Context& context) {
  // Sparse parts are gathered and not reduced on their way: different ranks send different
  // elements, so sums would become dense after a few ranks.
  if (!isSparse(context.plan.spec())) return makeReduction(context);
  return makeSparseAllgather(context, Sends::kAfterBackward);
}

constexpr auto kAllreduceOptions = joined(kReductionOptions, kDgcOptions);

}  // namespace

extern const Algorithm kAllreduce{.name = "allreduce",
                                  .help = "one all-reduce of everything after backward (AR-SGD)",
                                  .choose = chooseAllreduce,
                                  .make = makeAllreduce,
                                  .alias = "arsgd",
                                  .options = kAllreduceOptions,
                                  .takesProcessGroup = true,
                                  .sendsOldestFirst = true};

}  // namespace sluice::algorithms
