// All ranks send to all as fast as TCP lets them, to see how long queues become. Waits; any thread
// but the loop's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <tools/probe/talker.h>

namespace sluice::probe {

using RoundTrips = std::map<std::string, std::vector<double>>;  // seconds, by address

// Every rank calls it at the same time. Returns TCP's average round trips of this process's
// connections, several looks at each, in the second half of the time.
Result<RoundTrips> crowdTheNetwork(Loop& loop, Talker& talker, const std::vector<Rank>& peers,
                                   Duration length);

}  // namespace sluice::probe
