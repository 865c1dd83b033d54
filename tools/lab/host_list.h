// Host numbers as people write them: "0-3,5". A pure function.
#pragma once

#include <string_view>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::lab {

// Returns the hosts in the order written, each once. Fails for a host that a lab of `hosts` hosts
// does not have.
Result<std::vector<int>> parseHostList(std::string_view text, int hosts);

}  // namespace sluice::lab
