// Replays a model's profile in an arena, algorithm by algorithm, run by run, and returns the
// figures.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/config.h>
#include <tools/bench/arena.h>
#include <tools/bench/figures.h>

namespace sluice::bench {

struct ReplayOptions {
  std::string profile{};  // a built-in one, or a file
  std::vector<std::string> algorithms{};
  double ratio = 1;  // wire time / compute time; sets how long replayed computing takes
  int runs = 3;
  int warmUp = 2;
  int iterations = 5;
  std::string update{};               // on the servers: optimizer/optimizer_spec.h
  bool watchNetwork = false;          // sample the first host's link
  bool compareWithReference = false;  // compare final parameters with those of one process
  std::string hostRates{};            // of the arena, as given
  std::string straggler{};            // unevenness.h
  std::string jitter{};
  // The configuration of the ranks: servers, fabric, slice size, ...; traces get a directory per
  // run.
  base::Config config{};
};

struct ReplayHooks {
  // Starts one rank, which prints a RankReport; the rank's task follows as the last word.
  std::vector<std::string> rankCommand{};
  std::function<void(std::string_view line)> onRankLine{};  // other output of ranks
  std::function<void(std::string_view what)> onRun{};       // before each run: its algorithm
  std::function<bool()> isInterrupted{};
};

// True iff ranks end with the same parameters, which are then compared. REQUIRES: there is such a
// algorithm.
bool comparesRanks(std::string_view algorithm);

// Returns the number of ranks: the workers, and dedicated servers besides.
Result<uint32_t> worldFor(uint32_t workers, const base::Config& config);

// Runs every algorithm once in each round, round by round, so that a machine that becomes slower
// does not do so for one algorithm only. REQUIRES: the arena has as many hosts as there are ranks.
Result<std::vector<Figures>> replay(const Arena& arena, const ReplayOptions& options,
                                    const ReplayHooks& hooks);

}  // namespace sluice::bench
