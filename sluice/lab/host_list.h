// Host numbers as people write them: "0-3,5". Pure.
#pragma once

#include <string_view>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::lab {

// In the order written, each host once. Fails for a host that a lab of `hosts` hosts does not have.
Result<std::vector<int>> parseHostList(std::string_view text, int hosts);

}  // namespace sluice::lab
