#include <tools/bench/known_costs.h>

#include <cmath>

#include <fmt/format.h>

#include <sluice/algorithms/reduction/reduction_options.h>

namespace sluice::bench {

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
