// Where `--json FILE` of a measurement goes.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include <sluice/base/status.h>

namespace sluice::cli {

// To the file, or to standard output if `path` is "-".
Status writeJson(const std::string& path, const nlohmann::ordered_json& document);

}  // namespace sluice::cli
