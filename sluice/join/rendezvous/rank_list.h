// Ranks as people read them: "3, 5-7".
#pragma once

#include <span>
#include <string>

#include <sluice/base/ids.h>

namespace sluice::rendezvous {

// "rank 3" or "ranks 3, 5-7"; after a dozen pieces "and N more". REQUIRES: sorted, not empty.
std::string describeRanks(std::span<const Rank> ranks);

}  // namespace sluice::rendezvous
