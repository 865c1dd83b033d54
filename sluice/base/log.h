// Logging on spdlog, one logger per folder so that verbosity follows the layer:
//   SLUICE_LOG=warn,fabric=debug
// A folder logs with `log("fabric").info("rank {} is here", rank)`. Log lines go to stderr; stdout
// belongs to what a program prints for its user.
#pragma once

#include <string_view>

#include <spdlog/logger.h>

#include <sluice/base/status.h>

namespace sluice::base {

// The logger of a layer (a folder's name), made on first use. Any thread. Code that logs often
// keeps the reference.
spdlog::logger& log(std::string_view layer);

// Sets levels from "LEVEL" or "LEVEL,layer=LEVEL,...": trace, debug, info, warn, error, off.
Status setLogLevels(std::string_view spec);

// Sets the text that stands before every line of this process, such as "rank 3"; it may be empty.
void setLogPrefix(std::string_view prefix);

}  // namespace sluice::base

namespace sluice {
using base::log;
}  // namespace sluice
