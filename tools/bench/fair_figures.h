// Decides which figures are fair for an algorithm: how its iterations are timed, whether the bound of
// boundSeconds holds for it, and what it knows before it plans. Replays and simulations ask the same
// questions. Pure functions.
#pragma once

#include <string>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <sluice/base/units.h>
#include <tools/bench/figures.h>
#include <tools/bench/unevenness.h>

namespace sluice::bench {

// Workers that keep step are all as slow as the slowest. The others are measured by the steps that
// they do together.
Measure measureFor(const algorithms::Algorithm& algorithm, const Unevenness& unevenness);

// True iff every gradient is sent whole and used in its own step. `config` has the options of the
// algorithm.
bool sendsEverything(const algorithms::Algorithm& algorithm, const base::Config& config);

// Sets the times and the rate that algorithms merge tensors by, unless the user has given others. A
// replay and a simulation know them exactly. `rate` is that of a host's payload, after --shrink.
Status setKnownCosts(const std::string& profile, double computeSeconds, Rate rate,
                     base::Config& config);

}  // namespace sluice::bench
