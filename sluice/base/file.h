// Reads files. Any thread.
#pragma once

#include <string>
#include <string_view>

#include <sluice/base/status.h>

namespace sluice::base {

// Returns the whole text of a file. An error says what it is: "cannot read the network NET.json: No
// such file or directory".
Result<std::string> readFile(std::string_view what, const std::string& path);

}  // namespace sluice::base
