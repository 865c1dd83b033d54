// AR-SGD: one reduction of the whole gradient after backward. MG-WFBP calls it SyncEASGD.
#include <sluice/strategy/algorithms.h>
#include <sluice/strategy/reduction.h>

namespace sluice::strategy {
namespace {

Status chooseAllreduce(const Config& config, plan::PlanSpec& spec) {
  const plan::Group everything{0, spec.model.tensors.size() - 1};
  return chooseReduction(config, std::span(&everything, 1), spec);
}

}  // namespace

const Algorithm kAllreduce{"allreduce", "one all-reduce of everything after backward (AR-SGD)",
                           chooseAllreduce, makeReduction};

}  // namespace sluice::strategy
