// Writes the JSON of a measurement for `--json FILE`.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include <sluice/base/status.h>

namespace sluice::cli {

// Checks the path. Call it before the first run, so that a path that cannot be written does not
// cost all runs.
Status checkWritable(const std::string& path);

// Writes to the file, or to standard output if `path` is "-".
Status writeJson(const std::string& path, const nlohmann::ordered_json& document);

}  // namespace sluice::cli
