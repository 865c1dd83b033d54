#include <sluice/bench/fair_figures.h>

#include <sluice/strategy/dgc/dgc_options.h>
#include <sluice/strategy/reduction/reduction_options.h>

namespace sluice::bench {

Measure measureFor(const strategy::Algorithm& algorithm, const Unevenness& unevenness) {
  return unevenness.isNone() && algorithm.keepsRanksEqual ? Measure::kSlowestWorker
                                                          : Measure::kThroughput;
}

bool sendsEverything(const strategy::Algorithm& algorithm, const base::Config& config) {
  return algorithm.keepsRanksEqual && !algorithm.delaysResults && !config.isOn(option::kDgc) &&
         config.text(option::kCodec) == "none";
}

}  // namespace sluice::bench
