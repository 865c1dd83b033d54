#include <tools/bench/fair_figures.h>

#include <cmath>

#include <fmt/format.h>

#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/reduction/reduction_options.h>

namespace sluice::bench {

Measure measureFor(const algorithms::Algorithm& algorithm, const Unevenness& unevenness) {
  return unevenness.isNone() && algorithm.keepsRanksEqual ? Measure::kSlowestWorker
                                                          : Measure::kThroughput;
}

bool sendsEverything(const algorithms::Algorithm& algorithm, const base::Config& config) {
  return algorithm.keepsRanksEqual && !algorithm.delaysResults && !config.isOn(option::kDgc) &&
         config.text(option::kCodec) == "none";
}

Status setKnownCosts(const std::string& profile, double computeSeconds, Rate rate,
                     base::Config& config) {
  const auto set = [&](const base::Option& option, const std::string& value) {
    const bool isGiven = config.value(option).source != base::Source::kDefault;
    return isGiven ? base::ok() : config.set(option, value);
  };
  SLUICE_RETURN_IF_ERROR(set(option::kLayerTimes, profile));
  SLUICE_RETURN_IF_ERROR(
      set(option::kComputeTime, fmt::format("{}us", std::llround(computeSeconds * 1e6))));
  return set(option::kReductionRate, base::formatRate(rate));
}

}  // namespace sluice::bench
