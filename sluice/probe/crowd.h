// All ranks send to all at the same time: only then does it show that a host cannot take in what
// the others send, and how long queues become. Waits; any thread but the loop's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sluice/probe/own_sockets.h>
#include <sluice/probe/talker.h>

namespace sluice::probe {

struct CrowdOptions {
  std::vector<Rank> peers;
  Duration length{};
  size_t pieceBytes = kLargestPiece;
};

struct CrowdResult {
  std::map<uint32_t, double> inBits;                      // from each rank, in bits a second
  std::map<std::string, std::vector<double>> roundTrips;  // by address, in the second half
};

// Every rank calls it at the same time.
Result<CrowdResult> sendToAll(Loop& loop, Talker& talker, const CrowdOptions& options);

}  // namespace sluice::probe
