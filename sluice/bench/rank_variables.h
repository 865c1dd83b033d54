// How a measurement hands its own configuration to the ranks it starts: as variables of their
// environment.
#pragma once

#include <map>
#include <string>

#include <sluice/base/config.h>

namespace sluice::bench {

// Everything that is not a default here, and a quiet log: one line per rank and run about what is
// going well would bury the figures.
std::map<std::string, std::string> variablesFor(const base::Config& config);

}  // namespace sluice::bench
