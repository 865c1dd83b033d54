#include <sluice/algorithms/catalogue/stale_training.h>

#include <fmt/format.h>

#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/dgc/stale_server.h>
#include <sluice/algorithms/dgc/summing_server.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/options.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::algorithms {
namespace {

constexpr const char* kMomentumSetting = "momentum-at";

Result<MomentumAt> momentumAt(const Context& context) {
  const std::string& at = context.plan.spec().settings.at(kMomentumSetting);
  if (at == "server") return MomentumAt::kServer;
  if (context.update.optimizer != &optimizer::sgd()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--momentum-at {} is for SGD, and the update is {}; leave the option "
                              "out, or use SGD",
                              at, context.update.optimizer->name()));
  }
  return at == "workers" ? MomentumAt::kWorkers : MomentumAt::kNone;
}

}  // namespace

Status chooseStale(const base::Config& config, plan::PlanSpec& spec) {
  spec.settings[kMomentumSetting] = config.text(option::kMomentumAt);
  const bool keepsStateAtWorkers =
      config.isOn(option::kDgc) || config.text(option::kMomentumAt) == "workers";
  if (config.isOn(option::kOverlap) && keepsStateAtWorkers) {
    return {Code::kInvalidArgument,
            "--overlap sends parts that can be dropped, which momentum or compression at the "
            "workers cannot take back; leave out --overlap, or --dgc and --momentum-at workers"};
  }
  if (!config.isOn(option::kDgc)) {
    SLUICE_RETURN_IF_ERROR(chooseAnswering(config, spec));
    return chooseEarlyParts(config, spec);
  }
  if (config.text(option::kMomentumAt) != "server") {
    return {Code::kInvalidArgument,
            "--dgc keeps the momentum at the workers by itself; leave out --momentum-at"};
  }
  return chooseSparseServer(config, spec);
}

Result<std::unique_ptr<Strategy>> makeStale(const Context& context, uint64_t bound, Pulls pulls) {
  std::unique_ptr<StaleForm> form;
  if (isSparse(context.plan.spec())) {
    SLUICE_ASSIGN_OR_RETURN(form, makeSparseStale(context));
  } else {
    SLUICE_RETURN_IF_ERROR(checkUpdate(context));
    SLUICE_ASSIGN_OR_RETURN(const MomentumAt momentum, momentumAt(context));
    form = makePlainStale(context, momentum);
  }
  return makeStale(context, std::move(form), bound, pulls);
}

}  // namespace sluice::algorithms
