#include <tools/bench/fair_figures.h>

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

}  // namespace sluice::bench
