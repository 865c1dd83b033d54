// What one rank of a replay has measured, as it travels on one line of its output to whoever
// started it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/bench/utilisation.h>

namespace sluice::bench {

struct RankReport {
  std::vector<double>
      iterationSeconds{};  // in order, the warm-up left out; empty at a rank that only serves
  std::vector<double>
      ends{};               // when each ended, on the host's clock; before them the warm-up's end
  double cpuSeconds = 0;    // per iteration, all threads of the process
  double wireBytes = 0;     // per iteration, that left the host: headers and repetitions included
  double payloadBytes = 0;  // per iteration, that the fabric has sent
  double inversionMs = 0;   // p99 of the priority inversion time of what it sent
  int exactSteps =
      0;  // after which parameters were, bit for bit, those of one process; 0: not compared
  std::optional<Utilisation> utilisation{};

  std::string toText() const;  // one line
};

// Empty if the line is no report: ranks may print other things.
std::optional<RankReport> parseRankReport(std::string_view line);

}  // namespace sluice::bench
