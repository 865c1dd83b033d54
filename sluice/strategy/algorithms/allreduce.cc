// AR-SGD: one reduction of the whole gradient after backward. MG-WFBP calls it SyncEASGD.
#include <sluice/base/options.h>
#include <sluice/strategy/algorithms/algorithms.h>
#include <sluice/strategy/dgc/allgather.h>
#include <sluice/strategy/dgc/settings.h>
#include <sluice/strategy/reduction/reduction.h>

namespace sluice::strategy {
namespace {

Status chooseAllreduce(const base::Config& config, plan::PlanSpec& spec) {
  if (config.isOn(option::kDgc)) SLUICE_RETURN_IF_ERROR(chooseDgc(config, spec));
  const timing::Group everything{0, spec.model.tensors.size() - 1};
  return chooseReduction(config, std::span(&everything, 1), spec);
}

Result<std::unique_ptr<Strategy>> makeAllreduce(const Rooms& rooms) {
  return isSparse(rooms.plan.spec()) ? makeSparseAllgather(rooms) : makeReduction(rooms);
}

}  // namespace

const Algorithm kAllreduce{"allreduce", "one all-reduce of everything after backward (AR-SGD)",
                           chooseAllreduce, makeAllreduce, /*alias=*/"arsgd"};

}  // namespace sluice::strategy
