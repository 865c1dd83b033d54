// The task of one rank of a measurement of collectives, and its answer, as text. The task travels
// on the rank's command line, the answer on one line of its output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::bench {

struct CollectiveTask {
  std::vector<std::string> methods{};  // collective/method.h
  std::vector<uint64_t> sizes{};       // bytes of f32 to all-reduce
  std::string codec = "none";
  double seconds = 1;   // spent on each method and size, about
  uint32_t strips = 0;  // of each all-reduce; 0: by size
  std::string toText() const;
  friend bool operator==(const CollectiveTask&, const CollectiveTask&) = default;
};
Result<CollectiveTask> parseCollectiveTask(std::string_view text);

// One method at one size.
struct CollectiveFigure {
  std::string method{};
  uint64_t bytes = 0;
  double p50 = 0;  // seconds of one all-reduce
  double p99 = 0;
  friend bool operator==(const CollectiveFigure&, const CollectiveFigure&) = default;
};
std::string toText(const std::vector<CollectiveFigure>& figures);  // one line
// Returns empty if the line holds no figures: ranks may print other things.
std::optional<std::vector<CollectiveFigure>> parseCollectiveFigures(std::string_view line);

// The cost of a method as a line a + b*M. Least squares of relative errors give the line, so that
// small messages count as much as large ones. That makes the greatest relative error over all sizes
// nearly as small as possible.
struct LineFit {
  double start = 0;    // seconds
  double perByte = 0;  // seconds
  double worst = 0;    // greatest relative error of a size
};
// REQUIRES: at least two sizes
LineFit fitLine(const std::vector<CollectiveFigure>& figures);

}  // namespace sluice::bench
