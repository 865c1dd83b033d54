#include <tools/sim/scenario.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/median.h>
#include <sluice/base/options.h>
#include <sluice/data/timing/bounds.h>

namespace sluice::sim {
namespace {

template <typename Figure>
FigureRange rangeOver(const std::vector<SimulationResult>& results, Figure figure) {
  std::vector<double> values;
  for (const SimulationResult& result : results) values.push_back(figure(result));
  const auto [least, greatest] = std::ranges::minmax(values);
  return {base::median(values), least, greatest};
}

ScenarioRow rowOf(const SimulationOptions& job, double ratio,
                  const std::vector<SimulationResult>& results) {
  ScenarioRow row{.profile = job.profile,
                  .algorithm = job.algorithm,
                  .network = job.network,
                  .costs = job.costs,
                  .shrink = job.config.integer(option::kShrink),
                  .isExact = job.isExact,
                  .fidelity = job.fidelity,
                  .iterations = job.iterations,
                  .ratio = ratio,
                  .computeSeconds = job.computeSeconds,
                  .boundSeconds = results.front().boundSeconds};
  using Result = SimulationResult;
  const auto over = [&](auto figure) { return rangeOver(results, figure); };
  row.iteration = over([](const Result& r) { return r.iterationSeconds; });
  if (results.front().sendsEverything)
    row.overBound = over([](const Result& r) { return r.iterationSeconds / r.boundSeconds; });
  row.messages = over([](const Result& r) { return r.messages; });
  row.bytes = over([](const Result& r) { return r.bytes; });
  row.droppedShare = over([](const Result& r) {
    return static_cast<double>(r.segmentsDropped) /
           static_cast<double>(std::max(r.segments, uint64_t{1}));
  });
  row.busiestLoop = over([](const Result& r) { return r.busiestLoop; });
  row.inversionMs = over([](const Result& r) { return r.inversionMs; });
  row.cpuSeconds = over([](const Result& r) { return r.cpuSeconds; });
  for (const Result& result : results) {
    row.runs.push_back(result.iterationSeconds);
    row.traceHashes.push_back(result.traceHash);
  }
  return row;
}

// Fills in speedupOverKvstore of the rows with one number of hosts.
void compareWithKvstore(std::span<ScenarioRow> rows) {
  const auto baseline = std::ranges::find(rows, "kvstore", &ScenarioRow::algorithm);
  if (baseline == rows.end()) return;
  for (ScenarioRow& row : rows)
    row.speedupOverKvstore = baseline->iteration.median / row.iteration.median;
}

std::string_view fidelityOf(const ScenarioRow& row) {
  if (row.fidelity == Fidelity::kRacks) return "aggregated";
  return row.isExact ? "exact" : "shrunk";
}

}  // namespace

Result<std::vector<ScenarioRow>> run(const Scenario& scenario) {
  SimulationOptions job = scenario.job;
  SLUICE_ASSIGN_OR_RETURN(const Profile profile, timing::findProfile(job.profile));
  const double bytes = static_cast<double>(profile.toModel().bytes());
  std::vector<ScenarioRow> rows;
  for (const uint32_t hosts : scenario.hosts) {
    const size_t first = rows.size();
    job.network.hosts = hosts;
    job.computeSeconds =
        timing::shardedWireSeconds(hosts, bytes, job.network.rate) / scenario.ratio;
    for (const std::string& algorithm : scenario.algorithms) {
      job.algorithm = algorithm;
      std::vector<SimulationResult> results;
      for (const uint64_t seed : scenario.seeds) {
        job.network.seed = seed;
        if (!scenario.job.traceDirectory.empty())
          job.traceDirectory =
              fmt::format("{}/{}-{}-{}", scenario.job.traceDirectory, algorithm, hosts, seed);
        scenario.onRun(fmt::format("{} with {} hosts, seed {}", algorithm, hosts, seed));
        SLUICE_ASSIGN_OR_RETURN(results.emplace_back(), simulate(job));
      }
      rows.push_back(rowOf(job, scenario.ratio, results));
    }
    compareWithKvstore(std::span(rows).subspan(first));
  }
  return rows;
}

std::string describeFidelity(const SimulationOptions& job) {
  const int64_t shrink = job.config.integer(option::kShrink);
  const std::string_view hosts = job.costs.isFree()
                                     ? "left out (--cpu free): hosts are infinitely fast"
                                     : "charged by message and byte to one server per host";
  if (job.fidelity == Fidelity::kRacks) {
    return fmt::format(
        "aggregated simulation: each rack as one host; real plan and order; modelled: everything "
        "else, by pieces of the model, without windows, queues and drops\nhost's own work: {}",
        hosts);
  }
  return fmt::format(
      "simulation: real plan, gates, queues, credit, shards and sums on one simulated clock; "
      "modelled: computing (layer times), the network ({}){}\n"
      "host's own work: {}",
      job.network.model == NetworkModel::kSegments ? "segments, windows, queues, drops"
                                                   : "SimGrid's flows",
      shrink > 1 ? fmt::format("; every size divided by {} and counted {} times", shrink, shrink)
                 : "",
      hosts);
}

nlohmann::ordered_json toJson(const ScenarioRow& row) {
  nlohmann::ordered_json json{
      {"profile", row.profile},
      {"algorithm", row.algorithm},
      {"workers", row.network.hosts},
      {"topology", row.network.topology.toString()},
      {"ratio", row.ratio},
      {"iteration_s", row.iteration.median},
      {"iteration_s_range", {row.iteration.least, row.iteration.greatest}},
      {"bound_s", row.boundSeconds},
      {"over_bound", nullptr},
      {"over_bound_range", nullptr},
      {"speedup_over_kvstore", nullptr},
      {"messages", row.messages.median},
      {"bytes_on_wire", row.bytes.median},
      {"inversion_ms_p99", row.inversionMs.greatest},
      {"dropped_share", row.droppedShare.greatest},
      {"busiest_loop_share", row.busiestLoop.greatest},
      // The rest helps to judge these figures.
      {"simulated", true},
      {"fidelity", fidelityOf(row)},
      {"network", row.network.model == NetworkModel::kSegments ? "segments" : "simgrid"},
      {"shrink", row.shrink},
      {"host_cost", row.costs.isFree() ? "free" : "charged"},
      {"runs_s", row.runs},
      {"iterations_per_run", row.iterations},
      {"compute_s", row.computeSeconds},
      {"rate_bits_per_s", row.network.rate.bitsPerSecond},
      {"latency_s", base::seconds(row.network.latency)},
      {"simulator_cpu_s", row.cpuSeconds.median},
  };
  if (row.overBound) {
    json["over_bound"] = row.overBound->median;
    json["over_bound_range"] = {row.overBound->least, row.overBound->greatest};
  }
  if (row.speedupOverKvstore) json["speedup_over_kvstore"] = *row.speedupOverKvstore;
  auto hashes = nlohmann::ordered_json::array();
  for (const uint64_t hash : row.traceHashes) hashes.push_back(fmt::format("{:016x}", hash));
  json["trace_hashes"] = std::move(hashes);
  return json;
}

}  // namespace sluice::sim
