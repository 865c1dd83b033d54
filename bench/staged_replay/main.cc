// Measures how much of an iteration is spent waiting for staging alone, that is, for copies between
// a device and the host while neither the device computes nor the network carries anything.
//
// It is `sluice bench replay` with its tensors on a pretend device (tests/device/runtime) at each
// rank. The device's computing is replayed by kernels that sleep, and its copies sleep for their
// bandwidth, which is given as a multiple of the link's rate. Staging, sums, gates and the network
// are real. Every run is traced, with the devices' own times; the figures come from the traces.
//
//   staging alone   the share of an iteration in which the rank's device waits at a gate, no rank has
//                   a slice in the queue or on the network, and some rank has a slice that is being
//                   copied, or whose turn to be copied has not come (sluice/observe/trace/staging_waits.h)
//   staging on path the share of staging on the critical path, also while the network carries other
//                   slices: an upper bound for the former
//   copies beside push      of the time with copies to the host, the share with another slice's push
//   copies before first     the most copies of other tensors that a slice of the first one waited for
//
// Shares are medians over iterations and ranks, then over runs. "busiest core" is the busy share of
// the busiest core of any run, with everything that runs on the machine: above 70 %, the figures tell
// of the machine, not of staging.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <bench/staged_replay/core_load.h>
#include <bench/staged_replay/figures.h>
#include <bench/staged_replay/pretend_place.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/observe/trace/trace_file.h>
#include <tools/bench/replay.h>
#include <tools/bench/replay_rank.h>
#include <tools/cli/interruption.h>
#include <tools/cli/json_output.h>
#include <tools/cli/program.h>
#include <tools/trace/trace_reader.h>

namespace sluice::bench {
namespace {

constexpr std::string_view kHost = "host";  // in the place of a speed: no device

struct Flags {
  std::string profile = "resnet50";
  std::string algorithm = "sluice";
  std::string copies = "10,2,host";
  std::string rate = "500mbit";  // leaves two cores half idle
  std::string traces;
  std::string json;
  double ratio = 1;
  uint32_t workers = 2;
  int runs = 5;
  int warmUp = 2;
  int iterations = 8;
  bool isExact = false;
};

// A folder for traces that nobody wants to keep.
class TemporaryFolder final {
 public:
  TemporaryFolder()
      : path_((std::filesystem::temp_directory_path() / "staged-replay-XXXXXX").string()) {
    isMade_ = ::mkdtemp(path_.data()) != nullptr;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (isMade_) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  bool isMade() const { return isMade_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool isMade_ = false;
};

// ---- A rank ----

// Returns the bytes per second of copies in one direction.
Result<double> bandwidthOf(std::string_view copies, std::string_view rate) {
  SLUICE_ASSIGN_OR_RETURN(const double times, base::parseNumber(copies));
  SLUICE_ASSIGN_OR_RETURN(const Rate link, base::parseRate(rate));
  if (times > 0) return times * static_cast<double>(link.bitsPerSecond) / 8;
  return Status(Code::kInvalidArgument, "copies need a speed above 0");
}

Status useDeviceTimes(const base::Config& config, PretendPlace& place) {
  const std::string path =
      trace::traceFileName(config.text(option::kTrace), SessionOptions().name, place.rank());
  SLUICE_ASSIGN_OR_RETURN(auto traces, trace::readTraces(path));
  place.putDeviceTimes(traces.front());
  return trace::writeTraces(path, traces);
}

Result<RankReport> runRank(const Flags& flags, const std::string& text,
                           const base::Config& config) {
  SLUICE_ASSIGN_OR_RETURN(const RankTask task, parseRankTask(text));
  if (flags.copies == kHost) return replayRank(task, config, base::processEnvironment());
  SLUICE_ASSIGN_OR_RETURN(const double bandwidth, bandwidthOf(flags.copies, flags.rate));
  PretendPlace place(bandwidth);
  SLUICE_ASSIGN_OR_RETURN(auto report, replayRank(task, config, base::processEnvironment(), place));
  SLUICE_RETURN_IF_ERROR(useDeviceTimes(config, place));
  return report;
}

// ---- The measurement ----

class Measurement final {
 public:
  Measurement(const Flags& flags, base::Config config, const Arena& arena, std::string folder)
      : flags_(flags), config_(std::move(config)), arena_(arena), folder_(std::move(folder)) {}

  Result<std::vector<StagedFigures>> run() {
    std::vector<StagedFigures> rows;
    for (const auto copies : base::split(flags_.copies, ','))
      rows.push_back({.copies = std::string(base::trim(copies))});
    for (int run = 0; run < flags_.runs; ++run) {  // in turn: a slower machine slows all
      for (StagedFigures& row : rows) {
        const Status status = runOnce(row, run);
        // Ctrl-C keeps the rounds that are complete.
        if (status.code() == Code::kCancelled && run > 0) return firstRuns(std::move(rows), run);
        SLUICE_RETURN_IF_ERROR(status);
      }
    }
    return rows;
  }

 private:
  static std::vector<StagedFigures> firstRuns(std::vector<StagedFigures> rows, int runs) {
    fmt::print(stderr, "interrupted; these are the first {} runs\n", runs);
    for (StagedFigures& row : rows) row.runs.resize(static_cast<size_t>(runs));
    return rows;
  }

  Status runOnce(StagedFigures& row, int run) {
    fmt::print(stderr, "run {} of {}: copies {}\n", run + 1, flags_.runs, row.copies);
    const std::string folder = fmt::format("{}/copies-{}-run-{}", folder_, row.copies, run + 1);
    ReplayOptions options{.profile = flags_.profile,
                          .algorithms = {flags_.algorithm},
                          .ratio = flags_.ratio,
                          .runs = 1,
                          .warmUp = flags_.warmUp,
                          .iterations = flags_.iterations,
                          .update = "mean-gradient",
                          .compareWithReference = flags_.isExact,
                          .config = config_};
    SLUICE_RETURN_IF_ERROR(options.config.set(option::kTrace, folder));
    ReplayHooks hooks{.rankCommand = {std::filesystem::read_symlink("/proc/self/exe"), "rank",
                                      "--copies", row.copies, "--rate", flags_.rate}};
    hooks.onRankLine = [](std::string_view line) { fmt::print(stderr, "{}\n", line); };
    hooks.isInterrupted = &cli::Interruption::came;
    const CoreLoad load;
    SLUICE_ASSIGN_OR_RETURN(const auto figures, replay(arena_, options, hooks));
    // All ranks have this machine's clock, so the traces are on one clock as they are.
    SLUICE_ASSIGN_OR_RETURN(
        const auto traces,
        trace::readDirectory(fmt::format("{}/{}-1", folder, flags_.algorithm), ""));
    SLUICE_ASSIGN_OR_RETURN(StagedRun found, readRun(traces, flags_.warmUp, flags_.iterations));
    found.busyCores = load.shares(countedFrom(traces.front()), lastOf(traces.front()));
    found.cpuSeconds = figures.front().cpuSeconds;
    row.setting = figures.front().setting;
    row.runs.push_back(std::move(found));
    return base::ok();
  }

  // Returns when the iterations that count began, and when they ended.
  TimePoint countedFrom(const trace::RankTrace& trace) const {
    TimePoint end{};
    for (const StageEvent& event : trace.events) {
      if (event.stage == Stage::kReady && index(event.step) + 1 == uint64_t(flags_.warmUp))
        end = std::max(end, event.at);
    }
    return end;
  }
  static TimePoint lastOf(const trace::RankTrace& trace) {
    TimePoint end{};
    for (const StageEvent& event : trace.events) {
      if (event.stage == Stage::kReady) end = std::max(end, event.at);
    }
    return end;
  }

  const Flags& flags_;
  const base::Config config_;
  const Arena& arena_;
  const std::string folder_;
};

Status measure(const Flags& flags, const base::Config& config) {
  SLUICE_RETURN_IF_ERROR(cli::checkWritable(flags.json));
  SLUICE_ASSIGN_OR_RETURN(const Rate rate, base::parseRate(flags.rate));
  const cli::Interruption interruption;
  const TemporaryFolder temporary;
  if (flags.traces.empty() && !temporary.isMade())
    return base::fromErrno("cannot make a folder for traces");
  SLUICE_ASSIGN_OR_RETURN(const auto arena, Arena::up(flags.workers, rate, {}, config));
  fmt::print(stderr, "lab: {}\n", arena->toString());
  Measurement measurement(flags, config, *arena,
                          flags.traces.empty() ? temporary.path() : flags.traces);
  SLUICE_ASSIGN_OR_RETURN(const auto rows, measurement.run());
  if (flags.json != "-") fmt::print("{}", tableOf(rows).toText());
  return flags.json.empty() ? base::ok() : cli::writeJson(flags.json, jsonOf(rows));
}

int failWith(const Status& status) {
  fmt::print(stderr, "sluice: {}\n", status.message());  // replay() looks for the mark
  return static_cast<int>(cli::exitCodeFor(status.code()));
}

int runProgram(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measures the time that an iteration waits for copies between device and host alone",
               "staged_replay");
  app.footer(
      "Examples:\n"
      "  staged_replay                                     # copies at 10 and 2 times the link\n"
      "  staged_replay --profile vgg19 --rate 1gbit --copies 10,2 --runs 3\n"
      "  staged_replay --traces traces --runs 1            # then: sluice trace merge "
      "traces/copies-2-run-1/sluice-1\n"
      "  SLUICE_STAGING_BYTES=1mb staged_replay --json -\n\n"
      "It makes a lab of its own, and removes it. Run it on a quiet machine. Other options of "
      "sluice "
      "are read from the environment, as SLUICE_STAGING_BYTES.");
  cli::addWithDefault(&app, "--profile", flags.profile,
                      "Which model: a built-in profile, or a file");
  cli::addWithDefault(&app, "--algorithm", flags.algorithm, "Which algorithm");
  cli::addWithDefault(
      &app, "--copies", flags.copies,
      "Bandwidth of copies in one direction, in multiples of --rate; 'host': no device");
  cli::addWithDefault(&app, "--rate", flags.rate, "Speed of each host's link");
  cli::addWithDefault(&app, "--ratio", flags.ratio, "Wire time / compute time");
  cli::addWithDefault(&app, "--workers", flags.workers, "How many ranks");
  cli::addWithDefault(&app, "--runs", flags.runs, "Runs of each; the median counts");
  cli::addWithDefault(&app, "--iterations", flags.iterations, "Iterations that count in each run");
  cli::addWithDefault(&app, "--warm-up", flags.warmUp, "Iterations before them that do not")
      ->check(CLI::Range(2, 1000));
  app.add_flag("--exact", flags.isExact, "Also compare the results with those of one process");
  app.add_option("--traces", flags.traces, "Keep the traces in this folder");
  app.add_option("--json", flags.json, "Write the figures to this file; - for standard output");
  std::string task;
  CLI::App* rank = app.add_subcommand("rank", "One rank of a replay");
  rank->group("");  // not listed: the program starts it itself
  rank->add_option("--copies", flags.copies);
  rank->add_option("--rate", flags.rate);
  rank->add_option("task", task)->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  const auto config = base::Config::read({}, base::processEnvironment());
  if (!config.isOk()) return failWith(config.status());
  if (const Status status = base::setLogLevels(config->text(option::kLog)); !status.isOk())
    return failWith(status);
  if (!rank->parsed()) {
    const Status status = measure(flags, *config);
    return status.isOk() ? 0 : failWith(status);
  }
  const auto report = runRank(flags, task, *config);
  if (!report.isOk()) return failWith(report.status());
  fmt::print("{}\n", report->toText());
  return 0;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::runProgram(argc, argv);
}
