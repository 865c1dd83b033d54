// Tries the ports of other ranks: one plain connection to each, before any fabric is made. A rank
// that cannot be reached is then named by its address, and not as a lost peer. Waits; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/net/address.h>
#include <sluice/base/status.h>

namespace sluice::doctor {

// Returns the ranks that `rank` tries: all of a small job; of a large one a few, at growing
// distances.
std::vector<uint32_t> ranksToTry(uint32_t rank, uint32_t worldSize);

// Returns the ranks that could not be reached within `atMost`, with the reason.
std::map<uint32_t, std::string> findUnreachable(const std::vector<Address>& addresses,
                                                const std::vector<uint32_t>& ranks,
                                                Duration atMost);

std::string encodeUnreachable(const std::map<uint32_t, std::string>& unreachable);
Result<std::map<uint32_t, std::string>> decodeUnreachable(std::string_view text,
                                                          uint32_t worldSize);

}  // namespace sluice::doctor
