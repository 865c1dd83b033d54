// SSP: as asp, but nobody is more than `staleness` steps ahead of the slowest, and parameters come
// back only when the worker's copy is older than that: (1 + 1/(s+1)) models per worker and step, if
// all are as fast.
#include <fmt/format.h>

#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/strategy/algorithms/algorithms.h>
#include <sluice/strategy/algorithms/stale_training.h>

namespace sluice::strategy {
namespace {

constexpr const char* kSetting = "staleness";

Status chooseSsp(const base::Config& config, plan::PlanSpec& spec) {
  const int64_t staleness = config.integer(option::kStaleness);
  // What an answer can say of how old it is.
  if (staleness < 0 || staleness > static_cast<int64_t>(kMostLag)) {
    return {Code::kInvalidArgument,
            fmt::format("--staleness is {}; give 0 to {}", staleness, kMostLag)};
  }
  spec.settings[kSetting] = std::to_string(staleness);
  SLUICE_RETURN_IF_ERROR(chooseSurvival(config, spec));
  return chooseStale(config, spec);
}

Result<std::unique_ptr<Strategy>> makeSsp(const Rooms& rooms) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t staleness,
                          base::parseInteger(rooms.plan.spec().settings.at(kSetting)));
  return makeStale(rooms, static_cast<uint64_t>(staleness), Pulls::kWhenTooStale);
}

}  // namespace

const Algorithm kSsp{
    .name = "ssp",
    .help = "as asp, but nobody is more than 'staleness' steps ahead of the slowest",
    .choose = chooseSsp,
    .make = makeSsp,
    .argument = &option::kStaleness,
    .keepsRanksEqual = false};

}  // namespace sluice::strategy
