// The first contact with other ranks: does a small message come through, how long does it take, and
// does one of many packets? Waits; any thread but the loop's.
#pragma once

#include <vector>

#include <tools/probe/facts.h>
#include <tools/probe/talker.h>

namespace sluice::probe {

// Returns a PairFacts for each rank in `peers`, without rates. Every rank that is named must have
// its talker in use already. Ends within about eight seconds, whatever is lost.
Result<std::vector<PairFacts>> contact(Loop& loop, Talker& talker, const std::vector<Rank>& peers);

}  // namespace sluice::probe
