// The times and the rate that algorithms merge tensors by. A replay and a simulation know them
// exactly, so they are set unless the user has given others.
#pragma once

#include <string>

#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <sluice/base/units.h>

namespace sluice::bench {

// `rate` is that of a host's payload, after --shrink.
Status setKnownCosts(const std::string& profile, double computeSeconds, Rate rate,
                     base::Config& config);

}  // namespace sluice::bench
