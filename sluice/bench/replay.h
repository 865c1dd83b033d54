// Replays a model's profile in an arena, strategy by strategy, run by run, and returns the figures.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/bench/arena.h>
#include <sluice/bench/figures.h>

namespace sluice::bench {

struct ReplayOptions {
  std::string profile{};  // a built-in one, or a file
  std::vector<std::string> strategies{};
  double ratio = 1;  // wire time / compute time: how long computing is replayed to take
  int runs = 3;
  int warmUp = 2;
  int iterations = 5;
  std::string update{};               // on the servers: optimizer/optimizer_spec.h
  bool watchNetwork = false;          // sample the first host's link
  bool compareWithReference = false;  // parameters at the end with those of one process
  std::string straggler{};            // unevenness.h
  std::string jitter{};
  base::Config
      config{};  // of the ranks: servers, fabric, slice size, ...; traces, a directory per run
};

struct ReplayHooks {
  // Starts one rank, but for its task, which follows as the last word. Prints a RankReport.
  std::vector<std::string> rankCommand{};
  std::function<void(std::string_view line)> onRankLine{};  // what ranks say besides
  std::function<void(std::string_view what)> onRun{};       // before each run: its strategy
  std::function<bool()> isInterrupted{};
};

// True iff ranks end with the same parameters, which are then compared. REQUIRES: there is such a
// strategy.
bool comparesRanks(std::string_view strategy);

// How many ranks it takes: the workers, and dedicated servers besides.
Result<uint32_t> worldFor(uint32_t workers, const base::Config& config);

// All runs of the first round come before the second round, so that a machine that becomes slower
// does not do so for one strategy only. REQUIRES: the arena has as many hosts as there are ranks.
Result<std::vector<Figures>> replay(const Arena& arena, const ReplayOptions& options,
                                    const ReplayHooks& hooks);

}  // namespace sluice::bench
