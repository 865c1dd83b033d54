#include <tools/bench/replay.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/reduction/layer_times.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/base/options.h>
#include <sluice/data/timing/bounds.h>
#include <tools/bench/fair_figures.h>
#include <tools/bench/rank_messages.h>
#include <tools/bench/rank_task.h>
#include <tools/bench/shrunk_profile.h>

namespace sluice::bench {
namespace {

constexpr int kInterrupted = 130;  // as a shell says it: 128 + SIGINT

// One job from its start to its end.
class Run final {
 public:
  Run(const Arena& arena, const ReplayHooks& hooks, Measure measure)
      : arena_(arena), hooks_(hooks), measure_(measure), reports_(arena.hosts()) {}

  Result<RunFigures> toTheEnd(const RankTask& task, const base::Config& config,
                              const std::string& algorithm, const std::string& traceDirectory,
                              Duration limit) {
    lab::RunOptions options;
    options.command = hooks_.rankCommand;
    options.command.push_back(task.toText());
    options.environment = variablesFor(config);
    options.environment[base::environmentName(option::kAlgorithm)] = algorithm;
    options.environment[base::environmentName(option::kTrustedNetwork)] =
        "on";  // only the ranks are in the lab
    if (!traceDirectory.empty())
      options.environment[base::environmentName(option::kTrace)] = traceDirectory;
    options.timeout = limit;
    options.forwardSignals = true;
    options.onLine = [this](int rank, lab::Stream stream, std::string_view line) {
      take(rank, stream, line);
    };
    SLUICE_ASSIGN_OR_RETURN(const int exitCode, arena_.lab().run(std::move(options)));
    if (exitCode == kInterrupted || hooks_.isInterrupted())
      return Status(Code::kCancelled, "interrupted");
    if (exitCode == lab::kTimeoutExitCode) {
      return Status(Code::kTimeout, fmt::format("{}: the run was not done after {}", algorithm,
                                                base::formatDuration(limit)));
    }
    if (exitCode != 0) {
      return Status(
          Code::kInternal,
          fmt::format("{}: {}", algorithm,
                      firstError_.empty() ? fmt::format("a rank ended with exit code {}", exitCode)
                                          : firstError_));
    }
    std::vector<RankReport> ranks;
    for (size_t rank = 0; rank < reports_.size(); ++rank) {
      if (!reports_[rank]) {
        return Status(Code::kInternal,
                      fmt::format("{}: rank {} has reported nothing", algorithm, rank));
      }
      ranks.push_back(*std::move(reports_[rank]));
    }
    return combineRanks(ranks, measure_);
  }

 private:
  void take(int rank, lab::Stream stream, std::string_view line) {
    if (stream == lab::Stream::kOut) {
      if (auto report = parseRankReport(line)) {
        reports_[static_cast<size_t>(rank)] = std::move(report);
        return;
      }
    }
    constexpr std::string_view kError = "sluice: ";
    if (firstError_.empty() && line.starts_with(kError)) {
      firstError_ = fmt::format("rank {}: {}", rank, line.substr(kError.size()));
    }
    if (hooks_.onRankLine) hooks_.onRankLine(fmt::format("[{}] {}", rank, line));
  }

  const Arena& arena_;
  const ReplayHooks& hooks_;
  const Measure measure_;
  std::vector<std::optional<RankReport>> reports_;
  std::string firstError_;  // later errors follow from it
};

// Returns a directory of its own for every run: "traces/p3-2" for the second. Empty if no trace is
// wanted.
std::string traceDirectoryFor(const base::Config& config, const std::string& algorithm, int run) {
  const std::string& directory = config.text(option::kTrace);
  if (directory.empty()) return {};
  return std::filesystem::absolute(fmt::format("{}/{}-{}", directory, algorithm, run + 1)).string();
}

// Fills in the parts of the setting that the algorithm chooses before it runs.
Status fillInPlan(std::string_view written, base::Config config, const Model& model,
                  const plan::Roles& roles, Setting& setting) {
  SLUICE_ASSIGN_OR_RETURN(const algorithms::Algorithm* algorithm,
                          algorithms::readAlgorithm(written, config));
  plan::PlanSpec spec;
  spec.model = model;
  spec.roles = roles;
  spec.strategy = algorithm->name;
  SLUICE_RETURN_IF_ERROR(algorithm->choose(config, spec));
  setting.sliceElements = spec.slicing.sliceElements;
  setting.sendsEverything = sendsEverything(*algorithm, config);
  SLUICE_ASSIGN_OR_RETURN(setting.plannedSeconds, algorithms::plannedSeconds(config, spec));
  return base::ok();
}

}  // namespace

bool comparesRanks(std::string_view algorithm) {
  base::Config config;  // takes the option of the algorithm, if any
  return algorithms::readAlgorithm(algorithm, config).value()->keepsRanksEqual;
}

Result<uint32_t> worldFor(uint32_t workers, const base::Config& config) {
  const std::string& servers = config.text(option::kServers);
  constexpr std::string_view kDedicated = "dedicated:";
  if (!servers.starts_with(kDedicated)) return workers;
  SLUICE_ASSIGN_OR_RETURN(const int64_t dedicated,
                          base::parseInteger(servers.substr(kDedicated.size())));
  const auto world =
      static_cast<uint32_t>(std::clamp<int64_t>(dedicated, 0, lab::kMaxHosts)) + workers;
  SLUICE_RETURN_IF_ERROR(plan::parseRoles(servers, world).status());
  return world;
}

Result<std::vector<Figures>> replay(const Arena& arena, const ReplayOptions& options,
                                    const ReplayHooks& hooks) {
  if (!(options.ratio > 0) || options.runs < 1 || options.algorithms.empty()) {
    return Status(Code::kInvalidArgument,
                  "a replay needs a ratio above 0, at least one run and an algorithm");
  }
  SLUICE_ASSIGN_OR_RETURN(const Unevenness unevenness,
                          parseUnevenness(options.straggler, options.jitter));
  std::vector<Measure> measures;  // by algorithm
  for (const auto& written : options.algorithms) {
    base::Config config = options.config;
    SLUICE_ASSIGN_OR_RETURN(const auto* algorithm, algorithms::readAlgorithm(written, config));
    measures.push_back(measureFor(*algorithm, unevenness));
  }
  SLUICE_ASSIGN_OR_RETURN(const Profile profile,
                          findShrunkProfile(options.profile, options.config));
  SLUICE_ASSIGN_OR_RETURN(const plan::Roles roles,
                          plan::parseRoles(options.config.text(option::kServers), arena.hosts()));

  const auto workers = static_cast<uint32_t>(roles.workers.size());
  const double bytes = static_cast<double>(profile.toModel().bytes());
  RankTask task{
      .profile = options.profile,
      // `ratio` is defined for a server on every worker, wherever servers are in this replay.
      .computeSeconds = timing::shardedWireSeconds(workers, bytes, arena.rate()) / options.ratio,
      .warmUp = options.warmUp,
      .iterations = options.iterations,
      .update = options.update,
      .watchNetwork = options.watchNetwork,
      .compareWithReference = options.compareWithReference,
      .unevenness = unevenness};
  const auto layers = timing::layersOf(profile, task.computeSeconds);
  const timing::WireCost wire{
      .start = 0,
      .perByte = modelsOverBusiestLink(roles) * 8 /
                 static_cast<double>(arena.slowestPayloadRate().bitsPerSecond)};
  Setting setting{
      .profile = options.profile,
      .workers = workers,
      .ratio = options.ratio,
      .computeSeconds = task.computeSeconds,
      .boundSeconds = timing::p3Bound(layers, wire, arena.burstSeconds()),
      .rateBits = static_cast<double>(arena.rate().bitsPerSecond),
      .payloadBits = static_cast<double>(arena.payloadRate().bitsPerSecond),
      .goodputBits = static_cast<double>(arena.goodput().bitsPerSecond),
      .congestionControl = arena.congestionControl(),
      .fabric = options.config.text(option::kFabric),
      .encrypt = options.config.text(option::kEncrypt),
      .servers = options.config.text(option::kServers),
      .codec = options.config.text(option::kCodec),
      .overlaps = !options.config.isOn(option::kNoOverlap),
      .iterations = options.iterations,
      .hostRates = options.hostRates,
      .straggler = options.straggler,
      .jitter = options.jitter,
      .placement = options.config.text(option::kPlacement),
      .updateRateBits = static_cast<double>(options.config.rate(option::kUpdateRate).bitsPerSecond),
      .shrink = options.config.integer(option::kShrink)};
  base::Config config = options.config;
  SLUICE_RETURN_IF_ERROR(
      setKnownCosts(options.profile, task.computeSeconds, arena.payloadRate(), config));

  // Allow ten times the expected time, and a minute for all ranks to meet.
  const Duration limit =
      std::chrono::minutes(1) +
      base::fromSeconds(10 * setting.boundSeconds * (options.warmUp + options.iterations));

  std::vector<std::vector<RunFigures>> runs(options.algorithms.size());
  for (int run = 0; run < options.runs; ++run) {
    for (size_t s = 0; s < options.algorithms.size(); ++s) {
      if (hooks.isInterrupted()) return Status(Code::kCancelled, "interrupted");
      if (hooks.onRun) hooks.onRun(options.algorithms[s]);
      const auto& algorithm = options.algorithms[s];
      SLUICE_ASSIGN_OR_RETURN(
          auto figures, Run(arena, hooks, measures[s])
                            .toTheEnd(task, config, algorithm,
                                      traceDirectoryFor(options.config, algorithm, run), limit));
      runs[s].push_back(std::move(figures));
    }
  }
  std::vector<Figures> rows;
  for (size_t s = 0; s < options.algorithms.size(); ++s) {
    SLUICE_RETURN_IF_ERROR(
        fillInPlan(options.algorithms[s], config, profile.toModel(), roles, setting));
    setting.measure = measures[s];
    rows.push_back(summarise(setting, options.algorithms[s], runs[s]));
  }
  compareWithKvstore(rows);
  return rows;
}

}  // namespace sluice::bench
