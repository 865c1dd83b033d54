#include <sluice/strategy/algorithms/stale_training.h>

#include <sluice/base/options.h>
#include <sluice/strategy/dgc/stale_server.h>
#include <sluice/strategy/dgc/summing_server.h>
#include <sluice/strategy/slices.h>

namespace sluice::strategy {

Status chooseStale(const base::Config& config, plan::PlanSpec& spec) {
  return config.isOn(option::kDgc) ? chooseSparseServer(config, spec)
                                   : chooseAsynchronous(config, spec);
}

Result<std::unique_ptr<Strategy>> makeStale(const Rooms& rooms, uint64_t bound, Pulls pulls) {
  std::unique_ptr<StaleForm> form;
  if (isSparse(rooms.plan.spec())) {
    SLUICE_ASSIGN_OR_RETURN(form, makeSparseStale(rooms));
  } else {
    SLUICE_RETURN_IF_ERROR(checkUpdate(rooms));
    form = makePlainStale(rooms);
  }
  return makeStale(rooms, std::move(form), bound, pulls);
}

}  // namespace sluice::strategy
