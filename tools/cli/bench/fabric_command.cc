// sluice bench fabric: measures the rate of the fabric, and how soon urgent data overtakes, next to
// other programs on the same links. sluice bench fabric-rank: one rank of the measurement, started
// on each host.
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/config.h>
#include <sluice/base/options.h>
#include <tools/bench/fabric/bench.h>
#include <tools/bench/fabric/rank.h>
#include <tools/cli/commands.h>
#include <tools/cli/interruption.h>
#include <tools/cli/json_output.h>
#include <tools/cli/program.h>

namespace sluice::cli {
namespace {

struct FabricFlags {
  int hosts = 0;
  std::string rate;
  std::string json;
  int samples = 5;
  double seconds = 2;
  int rounds = 20;
};

Result<int> run(bench::FabricCase which, const FabricFlags& flags, const base::Config& config) {
  const int least = which == bench::FabricCase::kAllToAll ? 3 : 2;
  if (flags.hosts < least) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("this makes a cluster of its own on this machine: say --lab N, with N at least "
                    "{}",
                    least));
  }
  SLUICE_RETURN_IF_ERROR(checkWritable(flags.json));
  bench::FabricBenchOptions options{.which = which,
                                    .fabric = config.text(option::kFabric),
                                    .encrypt = config.text(option::kEncrypt),
                                    .hosts = flags.hosts,
                                    .samples = flags.samples,
                                    .seconds = flags.seconds,
                                    .rounds = flags.rounds,
                                    .config = config};
  if (!flags.rate.empty()) {
    SLUICE_ASSIGN_OR_RETURN(options.rate, base::parseRate(flags.rate));
  }
  options.rankCommand = {std::filesystem::read_symlink("/proc/self/exe"), "bench", "fabric-rank"};
  // Only this lab's own hosts can reach the ports.
  if (options.fabric == "ucx")
    SLUICE_RETURN_IF_ERROR(options.config.set(option::kTrustedNetwork, "on"));
  int sample = 0;
  options.onSample = [&](std::string_view what) { fmt::print(stderr, "{}: {}\n", ++sample, what); };

  const Interruption interruption;  // so that the lab is always removed
  lab::Layout layout;
  layout.hosts = flags.hosts;
  layout.rate = options.rate;
  SLUICE_ASSIGN_OR_RETURN(const auto lab, lab::TemporaryLab::up(layout));
  SLUICE_ASSIGN_OR_RETURN(const auto figures, bench::benchFabric(**lab, options));
  if (flags.json != "-") fmt::print("{}\n", bench::toText(figures));
  if (!flags.json.empty()) {
    SLUICE_RETURN_IF_ERROR(
        writeJson(flags.json, nlohmann::ordered_json::array({bench::toJson(figures)})));
  }
  return 0;
}

void addCase(Program& program, CLI::App& group, const std::string& name, const std::string& help,
             bench::FabricCase which, const std::vector<std::string>& examples) {
  CLI::App* command = program.addCommand(group, name, help, examples);
  auto flags = std::make_shared<FabricFlags>();
  command->add_option("--lab", flags->hosts,
                      "Make a lab of this many hosts, and remove it at the end");
  command->add_option("--rate", flags->rate,
                      "Speed of each host's link, as 1.2gbit; default: not shaped");
  addWithDefault(command, "--samples", flags->samples,
                 "How often each is measured, in turn; medians count");
  addWithDefault(command, "--seconds", flags->seconds, "Length of a sample");
  if (which == bench::FabricCase::kOvertake) {
    addWithDefault(command, "--rounds", flags->rounds, "Urgent slices in a sample");
  }
  command->add_option("--json", flags->json,
                      "Write the figures to this file; - for standard output");
  for (const base::Option* option :
       {&option::kFabric, &option::kEncrypt, &option::kPayloadCheck, &option::kCredit}) {
    program.addOption(command, *option);
  }
  program.onRun(command,
                [which, flags](const base::Config& config) { return run(which, *flags, config); });
}

// Adds the command that a measurement starts on each host. Scripts that kill, cut and stop ranks
// use it, too.
void addFabricRank(Program& program, CLI::App& group) {
  CLI::App* command =
      program.addCommand(group, "fabric-rank", "One rank of a fabric measurement",
                         {"sluice bench fabric-rank '{\"case\": \"idle\", \"seconds\": 60}'"});
  command->group("");  // not listed
  auto task = std::make_shared<std::string>();
  command->add_option("task", *task, "What to do, as 'sluice bench fabric' writes it")->required();
  program.onRun(command, [task](const base::Config& config) -> Result<int> {
    SLUICE_ASSIGN_OR_RETURN(const auto parsed, bench::parseFabricTask(*task));
    SLUICE_ASSIGN_OR_RETURN(const auto report,
                            bench::runFabricRank(parsed, config, base::processEnvironment()));
    fmt::print("{}\n", report.toText());
    return 0;
  });
}

}  // namespace

void addBenchFabricCommands(Program& program, CLI::App& bench) {
  CLI::App* group = program.addCommand(
      bench, "fabric", "Measure the fabric next to iperf3 and UCX on the same links",
      {"sluice bench fabric pair --lab 2 --encrypt off", "sluice bench fabric alltoall --lab 4",
       "sluice bench fabric overtake --lab 2 --rate 1.2gbit --json overtake.json"});
  addCase(program, *group, "pair", "One rank sends 200 KB messages to another",
          bench::FabricCase::kPair,
          {"sluice bench fabric pair --lab 2 --encrypt off --json pair.json"});
  addCase(program, *group, "alltoall", "Every rank sends to every other and sums what it receives",
          bench::FabricCase::kAllToAll, {"sluice bench fabric alltoall --lab 4 --encrypt off"});
  addCase(program, *group, "overtake",
          "An urgent slice against a backlog of 40 MB to the same rank",
          bench::FabricCase::kOvertake, {"sluice bench fabric overtake --lab 2 --rate 1.2gbit"});
  addFabricRank(program, bench);
}

}  // namespace sluice::cli
