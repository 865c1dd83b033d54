// Decides which figures are fair for an algorithm: how its iterations are timed, and whether the
// bound of boundSeconds holds for it. Replays and simulations ask the same questions. Pure
// functions.
#pragma once

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/base/config.h>
#include <tools/bench/figures.h>
#include <tools/bench/unevenness.h>

namespace sluice::bench {

// Workers that keep step are all as slow as the slowest. The others are measured by the steps that
// they do together.
Measure measureFor(const algorithms::Algorithm& algorithm, const Unevenness& unevenness);

// True iff every gradient is sent whole and used in its own step. `config` has the options of the
// algorithm.
bool sendsEverything(const algorithms::Algorithm& algorithm, const base::Config& config);

}  // namespace sluice::bench
