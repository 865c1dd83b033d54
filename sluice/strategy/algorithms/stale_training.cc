#include <sluice/strategy/algorithms/stale_training.h>

#include <sluice/base/options.h>
#include <sluice/strategy/dgc/dgc_options.h>
#include <sluice/strategy/dgc/stale_server.h>
#include <sluice/strategy/dgc/summing_server.h>
#include <sluice/strategy/slices.h>

namespace sluice::strategy {

Status chooseStale(const base::Config& config, plan::PlanSpec& spec) {
  return config.isOn(option::kDgc) ? chooseSparseServer(config, spec)
                                   : chooseAnswering(config, spec);
}

Result<std::unique_ptr<Strategy>> makeStale(const Context& context, uint64_t bound, Pulls pulls) {
  std::unique_ptr<StaleForm> form;
  if (isSparse(context.plan.spec())) {
    SLUICE_ASSIGN_OR_RETURN(form, makeSparseStale(context));
  } else {
    SLUICE_RETURN_IF_ERROR(checkUpdate(context));
    form = makePlainStale(context);
  }
  return makeStale(context, std::move(form), bound, pulls);
}

}  // namespace sluice::strategy
