#include <bench/staged_replay/figures.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/median.h>
#include <tools/trace/critical_path.h>
#include <tools/trace/staging_waits.h>

namespace sluice::bench {
namespace {

using trace::StagingWaits;

bool isStaging(const trace::PathPart& part) {
  return part.activity == trace::Activity::kStage &&
         (part.stage == Stage::kReady || part.stage == Stage::kStageOut ||
          part.stage == Stage::kStageIn);
}

// Returns the share of the critical path that is staging.
double onPath(const trace::Iteration& iteration) {
  Duration sum{};
  for (const auto& part : iteration.parts) {
    if (isStaging(part)) sum += part.length();
  }
  return base::seconds(sum) / base::seconds(iteration.length());
}

std::vector<double> valuesOf(const std::vector<StagedRun>& runs, double StagedRun::* field) {
  std::vector<double> values;
  for (const StagedRun& run : runs) values.push_back(run.*field);
  return values;
}

std::string percent(double share) {
  return fmt::format("{:.2f}", 100 * share);
}

}  // namespace

Result<StagedRun> readRun(std::span<const trace::RankTrace> traces, int warmUp, int iterations) {
  for (const auto& trace : traces) {
    if (trace.lost == 0) continue;
    return Status(Code::kDataLoss,
                  fmt::format("the trace of rank {} lacks {} events: raise SLUICE_TRACE_EVENTS",
                              trace.rank, trace.lost));
  }
  auto waits = trace::stagingWaits(traces);
  const auto isWarmUp = [&](const auto& each) {
    return index(each.step) < static_cast<uint64_t>(warmUp);
  };
  std::erase_if(waits, isWarmUp);
  if (waits.size() != traces.size() * static_cast<size_t>(iterations)) {
    return Status(Code::kDataLoss, fmt::format("the traces hold {} iterations, not {} x {}",
                                               waits.size(), traces.size(), iterations));
  }
  const auto medianShare = [&](const auto& part, const auto& whole) {
    std::vector<double> shares;
    for (const StagingWaits& each : waits) {
      const double all = base::seconds(whole(each));
      shares.push_back(all > 0 ? base::seconds(part(each)) / all : 0);
    }
    return shares;
  };
  const auto length = [](const StagingWaits& each) { return each.length(); };
  const auto share = [&](Duration StagingWaits::* part) {
    return medianShare([part](const StagingWaits& each) { return each.*part; }, length);
  };
  std::vector<double> seconds;
  StagedRun run;
  for (const StagingWaits& each : waits) {
    seconds.push_back(base::seconds(each.length()));
    run.copiesBeforeFirst = std::max(run.copiesBeforeFirst, each.copiesBeforeFirst);
  }
  run.iterationSeconds = base::median(seconds);
  run.computing =
      base::median(medianShare([](const StagingWaits& each) { return each.computing(); }, length));
  run.network = base::median(share(&StagingWaits::network));
  run.staging = base::median(share(&StagingWaits::staging));
  run.other = base::median(share(&StagingWaits::other));
  run.worstStaging = std::ranges::max(share(&StagingWaits::staging));
  run.copiesBesidePush =
      base::median(medianShare([](const StagingWaits& each) { return each.stagingOutAndPush; },
                               [](const StagingWaits& each) { return each.stagingOut; }));
  auto paths = trace::criticalPaths(traces);
  std::erase_if(paths, isWarmUp);
  std::vector<double> path;
  for (const auto& iteration : paths) path.push_back(onPath(iteration));
  run.stagingOnPath = base::median(path);
  return run;
}

double StagedFigures::median(double StagedRun::* field) const {
  return base::median(valuesOf(runs, field));
}
double StagedFigures::least(double StagedRun::* field) const {
  return std::ranges::min(valuesOf(runs, field));
}
double StagedFigures::greatest(double StagedRun::* field) const {
  return std::ranges::max(valuesOf(runs, field));
}

size_t StagedFigures::copiesBeforeFirst() const {
  return std::ranges::max(runs, {}, &StagedRun::copiesBeforeFirst).copiesBeforeFirst;
}

double StagedFigures::busiestCore() const {
  double most = 0;
  for (const StagedRun& run : runs) {
    for (const double share : run.busyCores) most = std::max(most, share);
  }
  return most;
}

cli::Table tableOf(std::span<const StagedFigures> rows) {
  cli::Table table({"profile", "ratio", "copies", "iteration s", "computing %", "network %",
                    "staging alone %", "runs from - to %", "worst %", "other %",
                    "staging on path %", "copies beside push %", "copies before first", "cpu s",
                    "busiest core %"});
  for (const StagedFigures& row : rows) {
    const bool isStaged = row.copies != "host";
    const auto ifStaged = [&](const std::string& text) { return isStaged ? text : "-"; };
    table.addRow({row.setting.profile, fmt::format("{:g}", row.setting.ratio), row.copies,
                  fmt::format("{:.3f}", row.median(&StagedRun::iterationSeconds)),
                  percent(row.median(&StagedRun::computing)),
                  percent(row.median(&StagedRun::network)),
                  ifStaged(percent(row.median(&StagedRun::staging))),
                  ifStaged(fmt::format("{} - {}", percent(row.least(&StagedRun::staging)),
                                       percent(row.greatest(&StagedRun::staging)))),
                  ifStaged(percent(row.greatest(&StagedRun::worstStaging))),
                  percent(row.median(&StagedRun::other)),
                  ifStaged(percent(row.median(&StagedRun::stagingOnPath))),
                  ifStaged(percent(row.median(&StagedRun::copiesBesidePush))),
                  ifStaged(fmt::to_string(row.copiesBeforeFirst())),
                  fmt::format("{:.3f}", row.median(&StagedRun::cpuSeconds)),
                  fmt::format("{:.0f}", 100 * row.busiestCore())});
  }
  return table;
}

nlohmann::ordered_json jsonOf(std::span<const StagedFigures> rows) {
  auto list = nlohmann::ordered_json::array();
  for (const StagedFigures& row : rows) {
    auto runs = nlohmann::ordered_json::array();
    for (const StagedRun& run : row.runs) {
      runs.push_back({{"iteration_s", run.iterationSeconds},
                      {"computing", run.computing},
                      {"network", run.network},
                      {"staging_alone", run.staging},
                      {"staging_alone_worst", run.worstStaging},
                      {"other", run.other},
                      {"staging_on_path", run.stagingOnPath},
                      {"copies_beside_push", run.copiesBesidePush},
                      {"copies_before_first", run.copiesBeforeFirst},
                      {"cpu_s_per_iteration", run.cpuSeconds},
                      {"busy_cores", run.busyCores}});
    }
    list.push_back({{"profile", row.setting.profile},
                    {"workers", row.setting.workers},
                    {"ratio", row.setting.ratio},
                    {"rate_bits_per_s", row.setting.rateBits},
                    {"goodput_bits_per_s", row.setting.goodputBits},
                    {"compute_s", row.setting.computeSeconds},
                    {"copies", row.copies},
                    {"iteration_s", row.median(&StagedRun::iterationSeconds)},
                    {"staging_alone", row.median(&StagedRun::staging)},
                    {"staging_alone_least", row.least(&StagedRun::staging)},
                    {"staging_alone_greatest", row.greatest(&StagedRun::staging)},
                    {"copies_before_first", row.copiesBeforeFirst()},
                    {"busiest_core", row.busiestCore()},
                    {"runs", std::move(runs)}});
  }
  return list;
}

}  // namespace sluice::bench
