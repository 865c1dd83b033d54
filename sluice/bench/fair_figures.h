// Decides which figures are fair for an algorithm: how its iterations are timed, and whether the
// bound of boundSeconds holds for it. Replays and simulations ask the same questions. Pure
// functions.
#pragma once

#include <sluice/base/config.h>
#include <sluice/bench/figures.h>
#include <sluice/bench/unevenness.h>
#include <sluice/strategy/algorithms/algorithm.h>

namespace sluice::bench {

// Workers that keep step are all as slow as the slowest. The others are measured by the steps that
// they do together.
Measure measureFor(const strategy::Algorithm& algorithm, const Unevenness& unevenness);

// True iff every gradient is sent whole and used in its own step. `config` has the options of the
// algorithm.
bool sendsEverything(const strategy::Algorithm& algorithm, const base::Config& config);

}  // namespace sluice::bench
