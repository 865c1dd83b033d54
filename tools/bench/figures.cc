#include <tools/bench/figures.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <nlohmann/json.hpp>

#include <sluice/base/check.h>
#include <sluice/base/median.h>

namespace sluice::bench {
namespace {

// Returns how many steps a worker had done at that moment; the step under way counts by its share.
// REQUIRES: ends.front() <= when <= ends.back()
double stepsUntil(const std::vector<double>& ends, double when) {
  const auto next = std::ranges::upper_bound(ends, when);
  if (next == ends.end()) return static_cast<double>(ends.size() - 1);
  const double before = *std::prev(next);
  return static_cast<double>(next - ends.begin() - 1) + (when - before) / (*next - before);
}

// Returns the mean over the counted iterations. A median would leave out the slow ones.
double meanIteration(const RankReport& worker) {
  return (worker.ends.back() - worker.ends.front()) / static_cast<double>(worker.ends.size() - 1);
}

double medianOf(std::span<const RunFigures> runs, double RunFigures::* field) {
  std::vector<double> values;
  for (const auto& run : runs) values.push_back(run.*field);
  return base::median(std::move(values));
}

}  // namespace

std::string_view name(Measure measure) {
  switch (measure) {
    case Measure::kSlowestWorker: return "the slowest worker's mean";
    case Measure::kThroughput: return "elapsed x workers / steps of all";
  }
  return "?";
}

Result<double> throughputIteration(std::span<const RankReport> ranks) {
  double begin = 0;
  double end = std::numeric_limits<double>::infinity();
  size_t workers = 0;
  for (const RankReport& rank : ranks) {
    if (rank.ends.empty()) continue;  // only serves
    ++workers;
    begin = std::max(begin, rank.ends.front());
    end = std::min(end, rank.ends.back());
  }
  SLUICE_CHECK(workers > 0);
  if (end <= begin) {
    return Status(Code::kInvalidArgument,
                  "one worker had ended before another was warm: give more --iterations");
  }
  double steps = 0;
  for (const RankReport& rank : ranks) {
    if (!rank.ends.empty()) steps += stepsUntil(rank.ends, end) - stepsUntil(rank.ends, begin);
  }
  return (end - begin) * static_cast<double>(workers) / steps;
}

Result<RunFigures> combineRanks(std::span<const RankReport> ranks, Measure measure) {
  RunFigures run;
  if (measure == Measure::kThroughput) {
    SLUICE_ASSIGN_OR_RETURN(run.iterationSeconds, throughputIteration(ranks));
  }
  for (const RankReport& rank : ranks) {
    if (measure == Measure::kSlowestWorker && !rank.ends.empty()) {
      run.iterationSeconds = std::max(run.iterationSeconds, meanIteration(rank));
    }
    run.cpuSeconds += rank.cpuSeconds / static_cast<double>(ranks.size());
    run.wireBytes += rank.wireBytes;
    run.payloadBytes += rank.payloadBytes;
    run.inversionMs = std::max(run.inversionMs, rank.inversionMs);
    if (!run.utilisation) run.utilisation = rank.utilisation;
  }
  SLUICE_CHECK(run.iterationSeconds > 0);
  return run;
}

double spread(std::span<const double> values) {
  const auto [least, greatest] = std::ranges::minmax(values);
  return greatest - least;
}

double modelsOut(const plan::Roles& roles, uint32_t first, uint32_t count) {
  const auto inside = [&](const std::vector<Rank>& ranks) {  // which ascend
    return static_cast<double>(std::ranges::lower_bound(ranks, Rank{first + count}) -
                               std::ranges::lower_bound(ranks, Rank{first}));
  };
  const auto servers = static_cast<double>(roles.servers.size());
  const auto workers = static_cast<double>(roles.workers.size());
  const double serversInside = inside(roles.servers);
  const double workersInside = inside(roles.workers);
  const double pushes = workersInside * (servers - serversInside) / servers;
  const double publishes = serversInside * (workers - workersInside) / servers;
  return pushes + publishes;
}

double modelsOverBusiestLink(const plan::Roles& roles) {
  double most = 0;
  for (uint32_t r = 0; r < roles.world; ++r) most = std::max(most, modelsOut(roles, r, 1));
  return most;
}

Figures summarise(const Setting& setting, std::string algorithm, std::span<const RunFigures> runs) {
  Figures figures{.setting = setting, .algorithm = std::move(algorithm)};
  for (const auto& run : runs) figures.runs.push_back(run.iterationSeconds);
  figures.iterationSeconds = base::median(figures.runs);
  figures.spreadSeconds = spread(figures.runs);
  if (setting.sendsEverything) figures.overBound = figures.iterationSeconds / setting.boundSeconds;
  figures.cpuSeconds = medianOf(runs, &RunFigures::cpuSeconds);
  figures.wireBytes = medianOf(runs, &RunFigures::wireBytes);
  figures.payloadBytes = medianOf(runs, &RunFigures::payloadBytes);
  figures.inversionMs = medianOf(runs, &RunFigures::inversionMs);
  figures.utilisation = runs.back().utilisation;
  return figures;
}

void compareWithKvstore(std::span<Figures> rows) {
  const auto baseline = std::ranges::find(rows, "kvstore", &Figures::algorithm);
  if (baseline == rows.end()) return;
  const double seconds = baseline->iterationSeconds;
  for (Figures& row : rows) row.speedupOverKvstore = seconds / row.iterationSeconds;
}

nlohmann::ordered_json toJson(const Figures& figures) {
  const Setting& setting = figures.setting;
  nlohmann::ordered_json json{
      {"profile", setting.profile},
      {"algorithm", figures.algorithm},
      {"workers", setting.workers},
      {"ratio", setting.ratio},
      {"iteration_s", figures.iterationSeconds},
      {"spread_s", figures.spreadSeconds},
      {"bound_s", setting.boundSeconds},
      {"over_bound", nullptr},
      {"speedup_over_kvstore", nullptr},
      {"cpu_s_per_iteration", figures.cpuSeconds},
      {"bytes_on_wire", figures.wireBytes},
      {"inversion_ms_p99", figures.inversionMs},
      // The rest helps to judge these figures.
      {"runs_s", figures.runs},
      {"iterations_per_run", setting.iterations},
      {"compute_s", setting.computeSeconds},
      {"payload_bytes", figures.payloadBytes},
      {"rate_bits_per_s", setting.rateBits},
      {"payload_bits_per_s", setting.payloadBits},
      {"goodput_bits_per_s", setting.goodputBits},
      {"congestion_control", setting.congestionControl},
      {"fabric", setting.fabric},
      {"encrypt", setting.encrypt},
      {"servers", setting.servers},
      {"codec", setting.codec},
      {"overlap", setting.overlaps},
      {"slice_elements", setting.sliceElements},
      {"planned_s", nullptr},
      {"host_rates", setting.hostRates},
      {"straggler", setting.straggler},
      {"jitter", setting.jitter},
      {"iteration_s_is", name(setting.measure)},
      {"placement", setting.placement},
      {"update_rate_bits_per_s", setting.updateRateBits},
      {"shrink", setting.shrink},
  };
  if (setting.plannedSeconds) json["planned_s"] = *setting.plannedSeconds;
  if (figures.overBound) json["over_bound"] = *figures.overBound;
  if (figures.speedupOverKvstore) json["speedup_over_kvstore"] = *figures.speedupOverKvstore;
  if (figures.utilisation) {
    json["utilisation"] = {{"step_s", figures.utilisation->stepSeconds},
                           {"sent_bits_per_s", figures.utilisation->sentBits},
                           {"received_bits_per_s", figures.utilisation->receivedBits}};
  }
  return json;
}

}  // namespace sluice::bench
