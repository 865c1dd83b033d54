// The profile of a replay, shrunk as --shrink says: every tensor is divided by the number, and so are
// slices, credit (algorithms/slices.h) and the rates of links and updates. An iteration then takes as
// long as with the whole model, and as many messages, with a part of the bytes.
#pragma once

#include <string>

#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <sluice/base/units.h>
#include <sluice/data/timing/profile.h>

namespace sluice::bench {

// Refuses a number that is no divisor.
Result<Profile> findShrunkProfile(const std::string& nameOrPath, const base::Config& config);

// REQUIRES: findShrunkProfile() is ok
Rate shrunkRate(Rate rate, const base::Config& config);

}  // namespace sluice::bench
