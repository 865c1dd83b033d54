// What one rank of a replay is to do, as it travels on a command line from whoever starts the
// ranks. How it synchronises (algorithm, fabric, servers, ...) is not here: that is Config's, as in
// every other job.
#pragma once

#include <string>
#include <string_view>

#include <sluice/base/status.h>
#include <sluice/bench/unevenness.h>

namespace sluice::bench {

struct RankTask {
  std::string profile{};              // a built-in one, or a file
  double computeSeconds = 0;          // of one forward and backward pass
  int warmUp = 2;                     // iterations that are not counted: memory and links settle
  int iterations = 5;                 // that are
  std::string update{};               // what servers do with the mean: optimizer/optimizer_spec.h
  bool watchNetwork = false;          // sample what passes the interface: utilisation.h
  bool compareWithReference = false;  // at the end, parameters with those of one process

  Unevenness unevenness{};  // how much longer computing takes, for whom and when

  std::string toText() const;  // one line of JSON
  friend bool operator==(const RankTask&, const RankTask&) = default;
};

Result<RankTask> parseRankTask(std::string_view text);

}  // namespace sluice::bench
