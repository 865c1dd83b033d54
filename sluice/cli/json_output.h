// Where `--json FILE` of a measurement goes.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include <sluice/base/status.h>

namespace sluice::cli {

// Before the first run, so that a path that cannot be written does not cost all of them.
Status checkWritable(const std::string& path);

// To the file, or to standard output if `path` is "-".
Status writeJson(const std::string& path, const nlohmann::ordered_json& document);

}  // namespace sluice::cli
