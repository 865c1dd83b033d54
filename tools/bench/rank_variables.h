// Hands the configuration of a measurement to the ranks that it starts, as variables of their
// environment.
#pragma once

#include <map>
#include <string>

#include <sluice/base/config.h>

namespace sluice::bench {

// Returns the options that are not at their default here, and a quiet log: one line per rank and
// run about each success would bury the figures.
std::map<std::string, std::string> variablesFor(const base::Config& config);

}  // namespace sluice::bench
