// The task of one rank of a replay. It travels on a command line from the process that starts the
// ranks. Config says how the rank synchronises (algorithm, fabric, servers, ...), as in every other
// job.
#pragma once

#include <string>
#include <string_view>

#include <sluice/base/status.h>
#include <tools/bench/unevenness.h>

namespace sluice::bench {

struct RankTask {
  std::string profile{};              // a built-in one, or a file
  double computeSeconds = 0;          // of one forward and backward pass
  int warmUp = 2;                     // iterations that are not counted: memory and links settle
  int iterations = 5;                 // iterations that are counted
  std::string update{};               // the update on the servers: optimizer/optimizer_spec.h
  bool watchNetwork = false;          // sample what passes the interface: utilisation.h
  bool compareWithReference = false;  // compare final parameters with those of one process

  Unevenness unevenness{};  // slower workers, and slower steps

  std::string toText() const;  // one line of JSON
  friend bool operator==(const RankTask&, const RankTask&) = default;
};

Result<RankTask> parseRankTask(std::string_view text);

}  // namespace sluice::bench
