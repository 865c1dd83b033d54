// sluice bench: measure how training goes. Here: the group, and the replays of models' profiles.
#include <cmath>

#include <fmt/format.h>

#include <sluice/base/config.h>
#include <sluice/base/options.h>
#include <tools/bench/replay_rank.h>
#include <tools/cli/bench/bench_run.h>
#include <tools/cli/commands.h>
#include <tools/cli/program.h>

namespace sluice::cli {
namespace {

const std::string kAllStrategies = "kvstore,slicing,p3,sluice";

void addWorkers(CLI::App* command, BenchFlags& flags) {
  addWithDefault(command, "--workers", flags.workers, "How many workers, a host each");
}
void addRatio(CLI::App* command, BenchFlags& flags) {
  addWithDefault(command, "--ratio", flags.ratio,
                 "Wire time / compute time; computing is stretched to reach it");
}

void addReplay(Program& program, CLI::App& group) {
  CLI::App* command = program.addCommand(
      group, "replay", "Train a model's profile with several algorithms and compare",
      {"sluice bench replay --profile resnet50 --lab",
       "sluice bench replay --profile vgg19 --algorithms kvstore,p3 --ratio 0.75 --runs 5 "
       "--lab --json vgg19.json",
       "sluice bench replay --algorithms bsp,asp,ssp:3 --iterations 20 --straggler 1:3x --lab",
       "sluice bench replay --algorithms sluice --runs 1 --lab --trace traces  # then: sluice "
       "trace merge traces/sluice-1"});
  auto flags = addBenchFlags(program, command, kAllStrategies);
  addWorkers(command, *flags);
  addRatio(command, *flags);
  command->add_option("--straggler", flags->straggler,
                      "So many workers compute so much longer, always, as 1:3x");
  command->add_option("--jitter", flags->jitter,
                      "Every worker computes longer in this share of its steps, as 0.1:3x");
  program.addOption(command, option::kSliceElements);
  program.addOption(command, option::kTrace);
  program.onRun(command, [flags](const base::Config& config) {
    return runBench(*flags, config, {{.workers = flags->workers, .ratio = flags->ratio}});
  });
}

// Adds a series: one flag takes a list, and each of its values is a case.
void addSeries(Program& program, CLI::App* command, const std::shared_ptr<BenchFlags>& flags,
               const std::string& flag, const std::string& values, const std::string& help,
               BenchCase (*caseFor)(const BenchFlags&, double)) {
  auto list = std::make_shared<std::string>(values);
  addWithDefault(command, flag, *list, help);
  program.onRun(command, [flags, list, caseFor](const base::Config& config) -> Result<int> {
    SLUICE_ASSIGN_OR_RETURN(const auto numbers, parseNumbers(*list));
    std::vector<BenchCase> cases;
    for (const double number : numbers) cases.push_back(caseFor(*flags, number));
    return runBench(*flags, config, cases);
  });
}

void addSweep(Program& program, CLI::App& group) {
  CLI::App* command = program.addCommand(
      group, "sweep", "Replay at several ratios of wire to compute time (P3's figure 7)",
      {"sluice bench sweep --profile vgg19 --ratios 0.5,1,2 --lab --json sweep.json"});
  auto flags = addBenchFlags(program, command, kAllStrategies);
  addWorkers(command, *flags);
  program.addOption(command, option::kSliceElements);
  addSeries(program, command, flags, "--ratios", "0.25,0.5,0.75,1,1.5,2",
            "Wire time / compute time, one after the other",
            [](const BenchFlags& common, double ratio) {
              return BenchCase{.workers = common.workers, .ratio = ratio};
            });
}

void addSlices(Program& program, CLI::App& group) {
  CLI::App* command =
      program.addCommand(group, "slices", "Replay with several sizes of slice (P3's figure 12)",
                         {"sluice bench slices --profile resnet50 --lab --json slices.json"});
  auto flags = addBenchFlags(program, command, "p3,sluice");
  addWorkers(command, *flags);
  addRatio(command, *flags);
  addSeries(program, command, flags, "--sizes", "5000,10000,25000,50000,100000,250000,1000000",
            "Parameters per slice, one after the other", [](const BenchFlags& common, double size) {
              return BenchCase{.workers = common.workers,
                               .ratio = common.ratio,
                               .sliceElements = std::llround(size)};
            });
}

void addScale(Program& program, CLI::App& group) {
  CLI::App* command = program.addCommand(
      group, "scale", "Replay with several numbers of workers (P3's figure 10)",
      {"sluice bench scale --profile resnet50 --workers 2,4,8 --lab --json scale.json"});
  auto flags = addBenchFlags(program, command, kAllStrategies);
  addRatio(command, *flags);
  program.addOption(command, option::kSliceElements);
  addSeries(program, command, flags, "--workers", "2,4,8", "Workers, one number after the other",
            [](const BenchFlags& common, double workers) {
              return BenchCase{.workers = static_cast<uint32_t>(workers), .ratio = common.ratio};
            });
}

// Adds the command that a replay starts on each host; nobody else calls it.
void addReplayRank(Program& program, CLI::App& group) {
  CLI::App* command =
      program.addCommand(group, "rank", "One rank of a replay", {"sluice bench rank TASK"});
  command->group("");  // not listed
  auto task = std::make_shared<std::string>();
  command->add_option("task", *task, "What to do, as 'sluice bench replay' writes it")->required();
  program.onRun(command, [task](const base::Config& config) -> Result<int> {
    SLUICE_ASSIGN_OR_RETURN(const auto parsed, bench::parseRankTask(*task));
    SLUICE_ASSIGN_OR_RETURN(const auto report,
                            bench::replayRank(parsed, config, base::processEnvironment()));
    fmt::print("{}\n", report.toText());
    return 0;
  });
}

}  // namespace

void addBenchCommand(Program& program, CLI::App& root) {
  CLI::App* group = program.addCommand(
      root, "bench", "Measure training and the network under it, in a lab made for it",
      {"sluice bench replay --profile resnet50 --lab",
       "sluice bench sweep --profile vgg19 --lab --json sweep.json",
       "sluice plot sweep.json -o sweep.png", "sluice bench fabric pair --lab 2 --encrypt off"});
  addReplay(program, *group);
  addSweep(program, *group);
  addSlices(program, *group);
  addScale(program, *group);
  addReplayRank(program, *group);
  addBenchFabricCommands(program, *group);
  addBenchCollectiveCommands(program, *group);
}

}  // namespace sluice::cli
