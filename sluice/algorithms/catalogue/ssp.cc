// SSP: as asp, but nobody is more than `staleness` steps ahead of the slowest, and parameters come
// back only when the worker's copy is older than that: (1 + 1/(s+1)) models per worker and step, if
// all are as fast.
#include <array>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/catalogue/stale_training.h>
#include <sluice/algorithms/server/answering.h>
#include <sluice/algorithms/words.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>

namespace sluice::algorithms {
namespace {

constexpr base::Option kStaleness =
    base::sameOnAllRanks({"staleness", base::Kind::kInteger, "3",
                          "ssp: how many steps a worker may be ahead of the slowest, 0 to 255"});

constexpr const char* kSetting = "staleness";

Status chooseSsp(const base::Config& config, plan::PlanSpec& spec) {
  const int64_t staleness = config.integer(kStaleness);
  // The header of an answer has room for a lag of kMostLag steps only.
  if (staleness < 0 || staleness > static_cast<int64_t>(answering::kMostLag)) {
    return {Code::kInvalidArgument,
            fmt::format("--staleness is {}; give 0 to {}", staleness, answering::kMostLag)};
  }
  spec.settings[kSetting] = std::to_string(staleness);
  SLUICE_RETURN_IF_ERROR(chooseSurvival(config, spec));
  return chooseStale(config, spec);
}

Result<std::unique_ptr<Strategy>> makeSsp(const Context& context) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t staleness,
                          base::parseInteger(context.plan.spec().settings.at(kSetting)));
  return makeStale(context, static_cast<uint64_t>(staleness), Pulls::kWhenTooStale);
}

constexpr auto kSspOptions = joined(std::array{&kStaleness, &option::kSurviveLoss}, kStaleOptions);

}  // namespace

extern const Algorithm kSsp{
    .name = "ssp",
    .help = "as asp, but nobody is more than 'staleness' steps ahead of the slowest",
    .choose = chooseSsp,
    .make = makeSsp,
    .options = kSspOptions,
    .argument = &kStaleness,
    .accuracy = "35 points less with 16 workers and s = 3, at a rate that was not tuned for it",
    .keepsRanksEqual = false,
    .readsParameters = true,
    .checkpointHoldsModel = true};

}  // namespace sluice::algorithms
