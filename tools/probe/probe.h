// Measures the network of a job through the real fabric: all its ranks call probeNetwork() together
// and each gets everything. The rates of pairs come first, one pair at a time for each rank, then
// that of all to all; every part has a time of its own, and so has every wait.
//
// Callers: `sluice doctor` and `sluice plan`, on their main thread.
#pragma once

#include <tools/probe/facts.h>
#include <tools/probe/meeting.h>

namespace sluice::probe {

struct ProbeOptions {
  Duration pairs = std::chrono::milliseconds(2100);   // for the loads of all rounds together
  Duration singles = std::chrono::milliseconds(500);  // small messages, one at a time
  Duration allAtOnce = std::chrono::milliseconds(700);
  Duration crowd = std::chrono::milliseconds(600);  // to fill queues
  double computeFactor = 1;  // for tests: this rank says that its work took so many times as long
  uint32_t mostRounds = 8;   // of pairs: with more than nine ranks some pairs are not measured
};

// REQUIRES: meeting.join() has succeeded, and no fabric was made of it.
Result<NetworkFacts> probeNetwork(ProbeMeeting& meeting, const ProbeOptions& options = {});

}  // namespace sluice::probe
