// sluice bench collective: measures all-reduces by method and size, fits a line a + b*M to the
// times, and writes that line to a file that ranks plan with. sluice bench collective-rank: one
// rank of the measurement, started on each host.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/data/collective/method_costs.h>
#include <sluice/data/timing/bounds.h>
#include <tools/bench/collective_rank.h>
#include <tools/bench/rank_messages.h>
#include <tools/cli/commands.h>
#include <tools/cli/interruption.h>
#include <tools/cli/json_output.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>
#include <tools/lab/lab.h>

namespace sluice::cli {
namespace {

using bench::CollectiveFigure;

constexpr auto kCollectiveLimit = std::chrono::minutes(10);

struct CollectiveFlags {
  int hosts = 0;
  std::string rate;
  std::string methods = "direct,ring,halving-doubling";
  std::string sizes = "4KB,64KB,1MB,4MB,25MB";
  double seconds = 1;
  uint32_t strips = 0;
  std::string json;
  std::string network;
};

Result<bench::CollectiveTask> taskOf(const CollectiveFlags& flags, const base::Config& config) {
  bench::CollectiveTask task;
  task.codec = config.text(option::kCodec);
  task.seconds = flags.seconds;
  task.strips = flags.strips;
  for (const auto method : base::split(flags.methods, ','))
    task.methods.emplace_back(base::trim(method));
  for (const auto size : base::split(flags.sizes, ',')) {
    SLUICE_ASSIGN_OR_RETURN(const uint64_t bytes, base::parseBytes(base::trim(size)));
    task.sizes.push_back(bytes);
  }
  if (task.sizes.size() < 2)
    return Status(Code::kInvalidArgument,
                  "--network fits a line through the measured sizes; give at least two --sizes");
  return task;
}

Result<std::vector<CollectiveFigure>> measure(const CollectiveFlags& flags,
                                              const bench::CollectiveTask& task,
                                              const base::Config& config) {
  lab::Layout layout;
  layout.hosts = flags.hosts;
  if (!flags.rate.empty()) {
    SLUICE_ASSIGN_OR_RETURN(layout.rate, base::parseRate(flags.rate));
  }
  const Interruption interruption;  // so that the lab is always removed
  SLUICE_ASSIGN_OR_RETURN(const auto lab, lab::TemporaryLab::up(layout));
  std::vector<CollectiveFigure> figures;
  std::string firstError;
  lab::RunOptions run;
  run.command = {std::filesystem::read_symlink("/proc/self/exe"), "bench", "collective-rank",
                 task.toText()};
  run.environment = bench::variablesFor(config);
  run.timeout = kCollectiveLimit;
  run.onLine = [&](int rank, lab::Stream stream, std::string_view line) {
    if (stream == lab::Stream::kError && firstError.empty())
      firstError = fmt::format("rank {}: {}", rank, line);
    if (auto found = bench::parseCollectiveFigures(line); found && rank == 0)
      figures = *std::move(found);
  };
  SLUICE_ASSIGN_OR_RETURN(const int exitCode, (*lab)->run(std::move(run)));
  if (exitCode != 0 || figures.empty()) {
    return Status(Code::kInternal, firstError.empty()
                                       ? fmt::format("a rank ended with exit code {}", exitCode)
                                       : firstError);
  }
  return figures;
}

std::vector<CollectiveFigure> ofMethod(const std::vector<CollectiveFigure>& all,
                                       const std::string& method) {
  std::vector<CollectiveFigure> some;
  for (const auto& figure : all) {
    if (figure.method == method) some.push_back(figure);
  }
  return some;
}

// Returns the Gbit that each rank has to send to all-reduce `bytes` bytes.
double gbitOnEachLink(double bytes, int hosts) {
  return timing::shardedWireSeconds(static_cast<uint32_t>(hosts), bytes, Rate{1'000'000'000});
}

// Returns the figure of the fastest method at each size.
std::vector<CollectiveFigure> fastest(const std::vector<CollectiveFigure>& all) {
  std::map<uint64_t, CollectiveFigure> bySize;
  for (const auto& figure : all) {
    const auto [known, isNew] = bySize.try_emplace(figure.bytes, figure);
    if (!isNew && figure.p50 < known->second.p50) known->second = figure;
  }
  std::vector<CollectiveFigure> best;
  for (const auto& [bytes, figure] : bySize) best.push_back(figure);
  return best;
}

// Writes a configuration file that ranks plan with, for --config FILE. It holds the method of
// --collective and its line; for auto, the lines of all methods, and one of the fastest method at
// each size.
Status saveNetwork(const CollectiveFlags& flags, const std::string& method,
                   const std::vector<CollectiveFigure>& figures,
                   const std::vector<collective::MethodCost>& costs) {
  const bool isAuto = method == "auto";
  const auto counting = isAuto ? fastest(figures) : ofMethod(figures, method);
  if (counting.empty()) {
    return {
        Code::kInvalidArgument,
        fmt::format("--network writes what --collective {} costs: add it to --methods", method)};
  }
  const auto fit = bench::fitLine(counting);
  const double bitsPerSecond = gbitOnEachLink(1, flags.hosts) * 1e9 / fit.perByte;
  nlohmann::ordered_json network{
      {"collective", method},
      {"reduction-start", fmt::format("{}us", std::max(0L, std::lround(fit.start * 1e6)))},
      {"reduction-rate", base::formatRate({static_cast<uint64_t>(std::llround(bitsPerSecond))})}};
  if (isAuto) network["collective-costs"] = collective::toText(costs);
  return writeJson(flags.network, network);
}

Result<int> run(const CollectiveFlags& flags, const base::Config& config) {
  if (flags.hosts < 2) {
    return Status(
        Code::kInvalidArgument,
        "this makes a cluster of its own on this machine: say --lab N, with N at least 2");
  }
  SLUICE_RETURN_IF_ERROR(checkWritable(flags.json));
  SLUICE_RETURN_IF_ERROR(checkWritable(flags.network));
  SLUICE_ASSIGN_OR_RETURN(const auto task, taskOf(flags, config));
  SLUICE_ASSIGN_OR_RETURN(const auto figures, measure(flags, task, config));
  std::map<std::string, bench::LineFit> fits;
  for (const auto& method : task.methods) fits[method] = bench::fitLine(ofMethod(figures, method));
  Table table({"method", "size", "p50 ms", "p99 ms", "Gbit/s on each link"});
  auto json = nlohmann::ordered_json::array();
  for (const auto& figure : figures) {
    const double gbit = gbitOnEachLink(static_cast<double>(figure.bytes), flags.hosts) / figure.p50;
    table.addRow({figure.method, base::formatBytes(figure.bytes),
                  fmt::format("{:.3f}", figure.p50 * 1e3), fmt::format("{:.3f}", figure.p99 * 1e3),
                  fmt::format("{:.3f}", gbit)});
    json.push_back({{"engine", "fabric"},
                    {"method", figure.method},
                    {"workers", flags.hosts},
                    {"rate", flags.rate},
                    {"codec", config.text(option::kCodec)},
                    {"bytes", figure.bytes},
                    {"p50_ms", figure.p50 * 1e3},
                    {"p99_ms", figure.p99 * 1e3},
                    {"link_gbit", gbit},
                    {"start_ms", fits[figure.method].start * 1e3},
                    {"ms_per_byte", fits[figure.method].perByte * 1e3}});
  }
  if (flags.json != "-") fmt::print("{}", table.toText());
  std::vector<collective::MethodCost> costs;
  for (const auto& method : task.methods) {
    const bench::LineFit& fit = fits[method];
    SLUICE_ASSIGN_OR_RETURN(const auto known, collective::parseMethod(method));
    costs.push_back({known, std::max(0.0, fit.start), fit.perByte});
    if (flags.json != "-") {
      fmt::print("{}: {:.0f} us + {:.3f} ns a byte, within {:.0f} %\n", method, fit.start * 1e6,
                 fit.perByte * 1e9, fit.worst * 100);
    }
  }
  if (!flags.network.empty())
    SLUICE_RETURN_IF_ERROR(saveNetwork(flags, config.text(option::kCollective), figures, costs));
  if (!flags.json.empty()) SLUICE_RETURN_IF_ERROR(writeJson(flags.json, json));
  return 0;
}

}  // namespace

void addBenchCollectiveCommands(Program& program, CLI::App& bench) {
  CLI::App* command = program.addCommand(
      bench, "collective", "Measure all-reduces by method and size",
      {"sluice bench collective --lab 4 --rate 1gbit --encrypt off",
       "sluice bench collective --lab 4 --rate 1gbit --json collective.json",
       "sluice plot collective.json -o collective.png",
       "sluice bench collective --lab 4 --rate 1gbit --network network.json",
       "sluice --config network.json bench replay --algorithms wfbp,mgwfbp --lab"});
  auto flags = std::make_shared<CollectiveFlags>();
  command->add_option("--lab", flags->hosts,
                      "Make a lab of this many hosts, and remove it at the end");
  command->add_option("--rate", flags->rate,
                      "Speed of each host's link, as 1gbit; default: not shaped");
  addWithDefault(command, "--methods", flags->methods, "Which methods");
  addWithDefault(command, "--sizes", flags->sizes, "Bytes of f32 to reduce");
  addWithDefault(command, "--seconds", flags->seconds, "Spent on each method and size, about");
  addWithDefault(command, "--strips", flags->strips,
                 "Cut each all-reduce into so many strips; 1: sums wait for bytes; 0: by size")
      ->check(CLI::Range(0, 1024));
  command->add_option("--json", flags->json,
                      "Write the figures to this file; - for standard output");
  command->add_option(
      "--network", flags->network,
      "Write what the method of --collective costs to this file, for --config; with auto, of each");
  for (const base::Option* option :
       {&option::kFabric, &option::kEncrypt, &option::kCodec, &option::kCollective})
    program.addOption(command, *option);
  program.onRun(command, [flags](const base::Config& config) { return run(*flags, config); });

  CLI::App* rank =
      program.addCommand(bench, "collective-rank", "One rank of a measurement of collectives",
                         {"sluice bench collective-rank TASK"});
  rank->group("");  // not listed
  auto task = std::make_shared<std::string>();
  rank->add_option("task", *task, "What to do, as 'sluice bench collective' writes it")->required();
  program.onRun(rank, [task](const base::Config& config) -> Result<int> {
    SLUICE_ASSIGN_OR_RETURN(const auto parsed, bench::parseCollectiveTask(*task));
    SLUICE_ASSIGN_OR_RETURN(const auto figures,
                            bench::runCollectiveRank(parsed, config, base::processEnvironment()));
    fmt::print("{}\n", bench::toText(figures));
    return 0;
  });
}

}  // namespace sluice::cli
