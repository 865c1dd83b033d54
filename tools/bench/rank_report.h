// The measurements of one rank of a replay. They travel on one line of its output to the process
// that started it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>
#include <tools/bench/utilisation.h>

namespace sluice::bench {

struct RankReport {
  // The end of the warm-up, and then that of each iteration, on the host's clock. Empty at a rank
  // that only serves.
  std::vector<double> ends{};
  double cpuSeconds = 0;    // per iteration, all threads of the process
  double wireBytes = 0;     // per iteration, that left the host: headers and repetitions included
  double payloadBytes = 0;  // per iteration, that the fabric has sent
  double inversionMs = 0;   // p99 of the priority inversion time of what it sent
  // After this many steps, parameters were those of one process, bit for bit; 0: not compared.
  int exactSteps = 0;
  std::optional<Utilisation> utilisation{};

  std::string toText() const;  // one line
};

// Returns empty if the line is no report: ranks may print other things.
std::optional<RankReport> parseRankReport(std::string_view line);

}  // namespace sluice::bench
