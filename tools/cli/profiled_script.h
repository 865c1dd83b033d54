// Runs `sluice profile` on a training script, as one process that no launcher has started.
#pragma once

#include <string>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>

namespace sluice::cli {

// Writes the profile of the script's model to `path`. The script's output goes to standard error.
// Ends the script if it takes longer than `atMost`, or if the user interrupts.
Status profileScript(const std::vector<std::string>& scriptAndArguments, uint32_t steps,
                     const std::string& path, Duration atMost);

}  // namespace sluice::cli
