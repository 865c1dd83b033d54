// Turns the measurements of ranks into the figures of an algorithm. Pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sluice/data/plan/roles.h>
#include <tools/bench/rank_report.h>

namespace sluice::bench {

// The definition of one iteration's time.
enum class Measure {
  kSlowestWorker,  // the largest of the workers' means: where all keep step
  kThroughput,     // elapsed time x workers / steps done by all: where they do not
};
std::string_view name(Measure measure);

// One job, run once.
struct RunFigures {
  double iterationSeconds = 0;
  double cpuSeconds = 0;                     // per iteration and rank, the mean
  double wireBytes = 0;                      // per iteration, that left all hosts together
  double payloadBytes = 0;                   // the same, without headers and repetitions
  double inversionMs = 0;                    // of the rank with the largest p99
  std::optional<Utilisation> utilisation{};  // of the first rank that has watched
};
// Combines the reports of all ranks. Fails if a throughput is wanted, and at no time were all
// workers counted. REQUIRES: at least one worker.
Result<RunFigures> combineRanks(std::span<const RankReport> ranks, Measure measure);

// Returns elapsed time x workers / steps done by all, from the moment at which the last worker is
// warm to the moment at which the first has ended.
Result<double> throughputIteration(std::span<const RankReport> ranks);

double spread(std::span<const double> values);  // from the least to the greatest

// Returns how many times the model leaves the `count` hosts from rank `first` on in one iteration,
// if servers share the slices equally: 2(N-1)/N for one of N hosts with a server on every rank. As
// much comes to them. Slices that the hosts keep among themselves do not travel.
double modelsOut(const plan::Roles& roles, uint32_t first, uint32_t count);
// Returns that for the busiest host.
double modelsOverBusiestLink(const plan::Roles& roles);

// The setting of a measurement: its lab and its options.
struct Setting {
  std::string profile{};
  uint32_t workers = 0;
  double ratio = 0;           // wire time / compute time
  double computeSeconds = 0;  // of one iteration
  double boundSeconds = 0;    // no schedule that sends every gradient in its step is faster
  double rateBits = 0;        // of each link
  double payloadBits = 0;     // that a link of this rate carries besides headers
  double goodputBits = 0;     // that iperf3 reached there
  std::string congestionControl{};
  std::string fabric{};
  std::string encrypt{};
  std::string servers{};
  std::string codec{};         // of all-reduces
  bool overlaps = true;        // false: --no-overlap
  uint64_t sliceElements = 0;  // of one message, at most, with this algorithm
  // The time of an iteration, by the costs that tensors are merged by.
  std::optional<double> plannedSeconds{};
  int iterations = 0;       // counted per run
  std::string hostRates{};  // as given: links that are unlike the others
  std::string straggler{};  // as given: unevenness.h
  std::string jitter{};
  std::string placement{};    // of slices on servers, of algorithms that take the option
  double updateRateBits = 0;  // of servers; 0: as fast as they are
  int64_t shrink = 1;         // every size and rate is divided by it
  Measure measure = Measure::kSlowestWorker;  // of an iteration, with this algorithm
  bool sendsEverything = true;  // every gradient is sent whole and used in its own step
};

// One algorithm in one setting, over all its runs.
struct Figures {
  Setting setting{};
  std::string algorithm{};
  std::vector<double> runs{};  // seconds per iteration, by run
  double iterationSeconds = 0;
  double spreadSeconds = 0;
  std::optional<double> overBound{};           // if the bound holds for this algorithm
  std::optional<double> speedupOverKvstore{};  // if that was measured too
  double cpuSeconds = 0;
  double wireBytes = 0;
  double payloadBytes = 0;
  double inversionMs = 0;
  std::optional<Utilisation> utilisation{};  // of the last run
};
// Returns medians over the runs. REQUIRES: at least one run.
Figures summarise(const Setting& setting, std::string algorithm, std::span<const RunFigures> runs);

// Fills in speedupOverKvstore from the row of that name, if there is one.
void compareWithKvstore(std::span<Figures> rows);

nlohmann::ordered_json toJson(const Figures& figures);

}  // namespace sluice::bench
