// The figures of staged replays, over all iterations, ranks and runs. Plain values.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sluice/observe/trace/rank_trace.h>
#include <tools/bench/figures.h>
#include <tools/cli/table.h>

namespace sluice::bench {

// One run of one job. Shares are medians over iterations and ranks, as parts of an iteration.
struct StagedRun {
  double iterationSeconds = 0;
  double computing = 0;
  double network = 0;
  double staging = 0;  // waits for staging alone
  double other = 0;
  double worstStaging = 0;       // of one iteration of one rank
  double stagingOnPath = 0;      // staging on the critical path, whatever else was under way
  double copiesBesidePush = 0;   // of the time of copies to the host: while another slice is sent
  size_t copiesBeforeFirst = 0;  // of other tensors, before one of the first tensor; the most
  double cpuSeconds = 0;         // per iteration and rank, with the pretend device's own
  std::vector<double> busyCores{};  // shares
};

// Reads a run from its traces, without the first `warmUp` iterations. An error if an iteration is
// missing. REQUIRES: the traces have the devices' times and are on one clock.
Result<StagedRun> readRun(std::span<const trace::RankTrace> traces, int warmUp, int iterations);

// All runs with one speed of copies.
struct StagedFigures {
  std::string copies{};  // as given: "10" times the link's rate, or "host"
  Setting setting{};
  std::vector<StagedRun> runs{};

  double median(double StagedRun::* field) const;
  double least(double StagedRun::* field) const;
  double greatest(double StagedRun::* field) const;
  size_t copiesBeforeFirst() const;
  double busiestCore() const;
};

cli::Table tableOf(std::span<const StagedFigures> rows);
nlohmann::ordered_json jsonOf(std::span<const StagedFigures> rows);

}  // namespace sluice::bench
