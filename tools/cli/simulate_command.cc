// sluice simulate: train a model's profile on clusters that we do not have, with the real code in
// simulated time.
#include <map>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <tools/cli/commands.h>
#include <tools/cli/interruption.h>
#include <tools/cli/json_output.h>
#include <tools/cli/program.h>
#include <tools/cli/run_progress.h>
#include <tools/cli/table.h>
#include <tools/sim/scenario.h>

namespace sluice::cli {
namespace {

constexpr int64_t kDefaultShrink = 64;
constexpr int64_t kMostHosts = 4096;
constexpr int64_t kMostHostsInRacks = 16384;

struct SimulateFlags {
  std::string hosts = "64";
  std::string algorithms = "p3,sluice";
  std::string topology = "star";
  std::string rate = "10gbit";
  std::string latency = "50us";
  std::string queue;
  std::string cpu = "plain";
  std::string straggler;
  std::string faults;
  std::string traceHosts;
  std::string json;
  uint32_t seeds = 5;
  sim::Scenario scenario{};
};

Status readNetwork(const SimulateFlags& flags, sim::NetworkOptions& network) {
  SLUICE_ASSIGN_OR_RETURN(network.topology, sim::parseTopology(flags.topology));
  SLUICE_ASSIGN_OR_RETURN(network.rate, base::parseRate(flags.rate));
  SLUICE_ASSIGN_OR_RETURN(network.latency, base::parseDuration(flags.latency));
  if (!flags.queue.empty()) {
    SLUICE_ASSIGN_OR_RETURN(network.queueBytes, base::parseBytes(flags.queue));
  }
  if (network.rate.bitsPerSecond == 0 || network.latency <= Duration::zero())
    return {Code::kInvalidArgument, "--rate and --latency must be above 0"};
  return base::ok();
}

Result<std::vector<uint32_t>> parseHosts(std::string_view flag, std::string_view list,
                                         int64_t least, int64_t most) {
  std::vector<uint32_t> hosts;
  for (const auto text : base::split(list, ',')) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t host, base::parseInteger(base::trim(text)));
    if (host < least || host > most)
      return Status(Code::kInvalidArgument,
                    fmt::format("{} has {}; give {} to {}", flag, host, least, most));
    hosts.push_back(static_cast<uint32_t>(host));
  }
  return hosts;
}

Status readTrace(const SimulateFlags& flags, sim::SimulationOptions& job) {
  job.traceDirectory = job.config.text(option::kTrace);
  if (flags.traceHosts.empty()) return base::ok();
  if (job.traceDirectory.empty())
    return {Code::kInvalidArgument, "--trace-hosts needs --trace DIR, where the traces go"};
  SLUICE_ASSIGN_OR_RETURN(job.tracedHosts,
                          parseHosts("--trace-hosts", flags.traceHosts, 0, kMostHosts - 1));
  return base::ok();
}

Result<sim::Scenario> scenarioOf(const SimulateFlags& flags, const base::Config& config) {
  sim::Scenario scenario = flags.scenario;
  sim::SimulationOptions& job = scenario.job;
  job.config = config;
  const bool isShrinkGiven = config.value(option::kShrink).source != base::Source::kDefault;
  if (!job.isExact && !isShrinkGiven) {
    SLUICE_RETURN_IF_ERROR(job.config.set(option::kShrink, fmt::to_string(kDefaultShrink)));
  }
  SLUICE_RETURN_IF_ERROR(readNetwork(flags, job.network));
  SLUICE_ASSIGN_OR_RETURN(job.unevenness, bench::parseUnevenness(flags.straggler, {}));
  SLUICE_ASSIGN_OR_RETURN(job.faults, sim::parseFaults(flags.faults));
  SLUICE_ASSIGN_OR_RETURN(job.costs, sim::parseCosts(flags.cpu));
  for (const auto name : base::split(flags.algorithms, ','))
    scenario.algorithms.emplace_back(base::trim(name));
  const int64_t most = job.fidelity == sim::Fidelity::kRacks ? kMostHostsInRacks : kMostHosts;
  SLUICE_ASSIGN_OR_RETURN(scenario.hosts, parseHosts("--hosts", flags.hosts, 2, most));
  SLUICE_RETURN_IF_ERROR(readTrace(flags, job));
  for (uint64_t seed = 1; seed <= flags.seeds; ++seed) scenario.seeds.push_back(seed);
  return scenario;
}

std::string rangeOf(const sim::FigureRange& range, int digits) {
  return fmt::format("{:.{}f}-{:.{}f}", range.least, digits, range.greatest, digits);
}

Table tableOf(const std::vector<sim::ScenarioRow>& rows) {
  Table table({"profile", "hosts", "topology", "rate", "algorithm", "iteration s", "range",
               "bound s", "over bound", "range", "over kvstore", "messages", "wire MB", "dropped %",
               "busiest loop %", "inversion p99 ms", "cpu s"});
  for (const auto& row : rows) {
    table.addRow({row.profile, fmt::to_string(row.network.hosts), row.network.topology.toString(),
                  base::formatRate(row.network.rate), row.algorithm,
                  fmt::format("{:.4f}", row.iteration.median), rangeOf(row.iteration, 4),
                  fmt::format("{:.4f}", row.boundSeconds),
                  row.overBound ? fmt::format("{:.3f}", row.overBound->median) : "-",
                  row.overBound ? rangeOf(*row.overBound, 3) : "-",
                  row.speedupOverKvstore ? fmt::format("{:.3f}", *row.speedupOverKvstore) : "-",
                  fmt::format("{:.0f}", row.messages.median),
                  fmt::format("{:.1f}", row.bytes.median / 1e6),
                  fmt::format("{:.3f}", row.droppedShare.greatest * 100),
                  fmt::format("{:.1f}", row.busiestLoop.greatest * 100),
                  fmt::format("{:.2f}", row.inversionMs.greatest),
                  fmt::format("{:.2f}", row.cpuSeconds.median)});
  }
  return table;
}

Result<int> runSimulate(const SimulateFlags& flags, const base::Config& config) {
  SLUICE_RETURN_IF_ERROR(checkWritable(flags.json));
  SLUICE_ASSIGN_OR_RETURN(sim::Scenario scenario, scenarioOf(flags, config));
  const Interruption interruption;
  scenario.job.isInterrupted = &Interruption::came;
  RunProgress progress(scenario.hosts.size() * scenario.algorithms.size() * scenario.seeds.size());
  scenario.onRun = [&](std::string_view what) { progress.next(what); };
  SLUICE_ASSIGN_OR_RETURN(const auto rows, sim::run(scenario));
  progress.clear();
  if (flags.json != "-") {
    fmt::print("{}\n{}", sim::describeFidelity(scenario.job), tableOf(rows).toText());
  }
  if (flags.json.empty()) return 0;
  auto list = nlohmann::ordered_json::array();
  for (const auto& row : rows) list.push_back(sim::toJson(row));
  SLUICE_RETURN_IF_ERROR(writeJson(flags.json, list));
  return 0;
}

void addNetworkFlags(CLI::App* command, SimulateFlags& flags) {
  sim::NetworkOptions& network = flags.scenario.job.network;
  command
      ->add_option_function<std::string>(
          "--network",
          [&network](const std::string& name) {
            network.model =
                name == "simgrid" ? sim::NetworkModel::kSimgrid : sim::NetworkModel::kSegments;
          },
          "Which model: segments, with windows, queues and drops, or simgrid, the flows "
          "of SimGrid as a second opinion (segments|simgrid) [segments]")
      ->check(CLI::IsMember({"segments", "simgrid"}))
      ->option_text("choice");
  addWithDefault(command, "--topology", flags.topology,
                 "star: one switch; racks:16x4: racks of 16 hosts, uplinks 4 times too slow for "
                 "all of them; cluster.json: a file (docs/scale.md)");
  addWithDefault(command, "--rate", flags.rate, "Speed of each host's link");
  addWithDefault(command, "--latency", flags.latency, "From host to host");
  command->add_option("--queue", flags.queue,
                      "Of a switch's port, as 1MiB; default: 5 ms of the rate, 256KiB at least");
  command->add_option(
      "--faults", flags.faults,
      "A list: cut:3@200ms+50ms cuts host 3's link for 50 ms, rate:3=100mbit@200ms+5s gives it "
      "another rate for 5 s, lose:5@1s ends host 5");
  addWithDefault(command, "--random-cuts", flags.scenario.job.randomCuts,
                 "Cut this many links for up to 20 ms, drawn from the seed");
  addWithDefault(command, "--loss", network.loss, "The share of segments that get lost")
      ->check(CLI::Range(0.0, 0.5));
  addWithDefault(command, "--latency-jitter", network.jitter,
                 "Latency grows by up to this share of it, by chance")
      ->check(CLI::Range(0.0, 100.0));
}

void addJobFlags(Program& program, CLI::App* command, SimulateFlags& flags) {
  sim::Scenario& scenario = flags.scenario;
  addWithDefault(command, "--profile", scenario.job.profile,
                 "Which model: a name of profiles/, as resnet50 or vgg19, or a file");
  addWithDefault(command, "--hosts", flags.hosts, "How many hosts, one number after the other");
  addWithDefault(command, "--algorithms", flags.algorithms,
                 "Which algorithms, one after the other");
  addWithDefault(command, "--ratio", scenario.ratio,
                 "Wire time / compute time; computing is stretched to reach it")
      ->check(CLI::Range(0.001, 1000.0));
  addWithDefault(command, "--seeds", flags.seeds,
                 "Runs of each algorithm, each with its own chance")
      ->check(CLI::Range(1, 1000));
  addWithDefault(command, "--iterations", scenario.job.iterations,
                 "Iterations that count in each run")
      ->check(CLI::Range(1, 10'000));
  addWithDefault(command, "--warm-up", scenario.job.warmUp, "Iterations before them that do not")
      ->check(CLI::Range(0, 1000));
  addWithDefault(command, "--update", scenario.job.update,
                 "What servers do with the mean gradient");
  addWithDefault(command, "--compute-jitter", scenario.job.computeJitter,
                 "A step computes up to this share longer, by chance")
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--straggler", flags.straggler,
                      "So many workers compute so much longer, always, as 1:3x");
  addWithDefault(command, "--cpu", flags.cpu,
                 "What a host's work costs: plain, encrypted, free (no time at all), or a file of "
                 "tools/sim/calibrate_hosts.py");
  command->add_flag("--exact", scenario.job.isExact,
                    "Whole tensors and real sums, compared with those of one process; needs the "
                    "memory of all hosts");
  command
      ->add_option_function<std::string>(
          "--fidelity",
          [&scenario](const std::string& name) {
            scenario.job.fidelity =
                name == "aggregated" ? sim::Fidelity::kRacks : sim::Fidelity::kHosts;
          },
          "hosts: the real code of every host; aggregated: each rack as one host, for up "
          "to 16384 hosts (hosts|aggregated) [hosts]")
      ->check(CLI::IsMember({"hosts", "aggregated"}))
      ->option_text("choice");
  command->add_option("--trace-hosts", flags.traceHosts,
                      "Which hosts --trace writes, as 0,3; default: all of them");
  command->add_option("--json", flags.json,
                      "Write the figures to this file; - for standard output");
  for (const base::Option* option : {&option::kServers, &option::kCredit, &option::kSliceElements,
                                     &option::kShrink, &option::kTrace, &option::kTraceEvents})
    program.addOption(command, *option);
}

}  // namespace

void addSimulateCommand(Program& program, CLI::App& root) {
  CLI::App* command = program.addCommand(
      root, "simulate",
      "Train a model's profile on a simulated cluster: the real code in simulated time",
      {"sluice simulate --profile resnet50 --hosts 64",
       "sluice simulate --hosts 16,64,256 --algorithms p3,sluice --rate 1gbit --json scale.json",
       "sluice simulate --hosts 256 --topology racks:16x4 --algorithms sluice --seeds 3",
       "sluice simulate --hosts 64 --cpu free      # without the hosts' own work",
       "sluice simulate --hosts 4096 --topology racks:16x4 --fidelity aggregated",
       "sluice simulate --hosts 8 --exact --seeds 1",
       "sluice simulate --hosts 8 --seeds 1 --algorithms sluice --trace traces --trace-hosts 0,3",
       "sluice trace merge traces/sluice-8-1"});
  auto flags = std::make_shared<SimulateFlags>();
  flags->scenario.job.profile = "resnet50";
  addJobFlags(program, command, *flags);
  addNetworkFlags(command, *flags);
  addAlgorithmFlags(program, command);  // --topology is the network's: write adpsgd:torus
  program.onRun(command,
                [flags](const base::Config& config) { return runSimulate(*flags, config); });
}

}  // namespace sluice::cli
