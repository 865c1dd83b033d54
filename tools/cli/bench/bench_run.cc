#include <tools/cli/bench/bench_run.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <tools/bench/shrunk_profile.h>
#include <tools/cli/commands.h>
#include <tools/cli/interruption.h>
#include <tools/cli/json_output.h>
#include <tools/cli/program.h>
#include <tools/cli/run_progress.h>
#include <tools/cli/table.h>
#include <tools/lab/layout.h>

namespace sluice::cli {
namespace {

// Returns where text for people goes: standard output may be for JSON alone.
std::FILE* forPeople(const BenchFlags& flags) {
  return flags.json == "-" ? stderr : stdout;
}

std::string fixed(double value, int digits) {
  return fmt::format("{:.{}f}", value, digits);
}

Table tableOf(const std::vector<bench::Figures>& rows) {
  Table table({"profile", "workers", "ratio", "slice", "algorithm", "iteration s", "spread",
               "bound s", "over bound", "over kvstore", "cpu s", "wire MB", "inversion p99 ms"});
  for (const auto& row : rows) {
    table.addRow(
        {row.setting.profile, std::to_string(row.setting.workers),
         fmt::format("{:g}", row.setting.ratio), std::to_string(row.setting.sliceElements),
         row.algorithm, fixed(row.iterationSeconds, 3), fixed(row.spreadSeconds, 3),
         fixed(row.setting.boundSeconds, 3), row.overBound ? fixed(*row.overBound, 3) : "-",
         row.speedupOverKvstore ? fixed(*row.speedupOverKvstore, 3) : "-", fixed(row.cpuSeconds, 3),
         fixed(row.wireBytes / 1e6, 1), fixed(row.inversionMs, 2)});
  }
  return table;
}

// Prints what a reader of the table must know of some of its rows.
void printNotes(const std::vector<bench::Figures>& rows) {
  std::set<std::string> throughputs;
  std::set<std::string> uncompared;
  std::set<std::string> unbounded;
  for (const auto& row : rows) {
    if (row.setting.measure == bench::Measure::kThroughput) throughputs.insert(row.algorithm);
    if (!row.overBound) unbounded.insert(row.algorithm);
    if (!bench::comparesRanks(row.algorithm)) uncompared.insert(row.algorithm);
  }
  if (!throughputs.empty()) {
    fmt::print(
        "{}: an iteration is {}; the bound is that of workers who keep step and are all as fast\n",
        fmt::join(throughputs, ", "), bench::name(bench::Measure::kThroughput));
  }
  if (!unbounded.empty()) {
    fmt::print("{}: may send less than every gradient in its step, so the bound does not hold\n",
               fmt::join(unbounded, ", "));
  }
  if (!uncompared.empty()) {
    fmt::print("{}: ranks do not end with equal parameters, so these were not compared\n",
               fmt::join(uncompared, ", "));
  }
}

// Parses "2=300mbit,3=100mbit".
Result<bench::HostRates> parseHostRates(std::string_view text, const base::Config& config) {
  bench::HostRates rates;
  if (text.empty()) return rates;
  for (const auto piece : base::split(text, ',')) {
    const size_t sign = piece.find('=');
    if (sign == std::string_view::npos) {
      return Status(Code::kInvalidArgument,
                    fmt::format("--host-rate has '{}'; write it as 2=300mbit", piece));
    }
    SLUICE_ASSIGN_OR_RETURN(const int64_t host,
                            base::parseInteger(base::trim(piece.substr(0, sign))));
    SLUICE_ASSIGN_OR_RETURN(const Rate rate, base::parseRate(base::trim(piece.substr(sign + 1))));
    if (host < 0 || host >= lab::kMaxHosts || rate.bitsPerSecond == 0) {
      return Status(Code::kInvalidArgument,
                    fmt::format("--host-rate has '{}'; write it as 2=300mbit", piece));
    }
    rates[static_cast<uint32_t>(host)] = bench::shrunkRate(rate, config);
  }
  return rates;
}

nlohmann::ordered_json jsonOf(const std::vector<bench::Figures>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& row : rows) list.push_back(bench::toJson(row));
  return list;
}

class Bench final {
 public:
  Bench(const BenchFlags& flags, const base::Config& config, size_t runs)
      : flags_(flags), config_(config), progress_(runs) {
    hooks_.rankCommand = {std::filesystem::read_symlink("/proc/self/exe"), "bench", "rank"};
    hooks_.onRankLine = [this](std::string_view line) {
      progress_.clear();
      fmt::print(stderr, "{}\n", line);
    };
    hooks_.isInterrupted = &Interruption::came;
  }

  Status run(const BenchCase& which) {
    SLUICE_ASSIGN_OR_RETURN(const uint32_t world, bench::worldFor(which.workers, config_));
    SLUICE_RETURN_IF_ERROR(enterArena(world));
    bench::ReplayOptions options{.profile = flags_.profile,
                                 .ratio = which.ratio,
                                 .runs = flags_.runs,
                                 .warmUp = flags_.warmUp,
                                 .iterations = flags_.iterations,
                                 .update = flags_.update,
                                 .watchNetwork = flags_.watchNetwork,
                                 .compareWithReference = flags_.compareWithReference,
                                 .hostRates = flags_.hostRates,
                                 .straggler = flags_.straggler,
                                 .jitter = flags_.jitter,
                                 .config = config_};
    for (const auto name : base::split(flags_.algorithms, ','))
      options.algorithms.emplace_back(base::trim(name));
    if (which.sliceElements != 0) {
      SLUICE_RETURN_IF_ERROR(
          options.config.set(option::kSliceElements, std::to_string(which.sliceElements)));
    }
    hooks_.onRun = [this, &which](std::string_view algorithm) {
      progress_.next(
          fmt::format("{} with {} workers, ratio {:g}", algorithm, which.workers, which.ratio));
    };
    SLUICE_ASSIGN_OR_RETURN(auto rows, bench::replay(*arena_, options, hooks_));
    std::ranges::move(rows, std::back_inserter(rows_));
    return base::ok();
  }

  const std::vector<bench::Figures>& rows() const { return rows_; }

 private:
  // Keeps the arena while the number of hosts stays the same.
  Status enterArena(uint32_t world) {
    if (arena_ != nullptr && arena_->hosts() == world) return base::ok();
    SLUICE_ASSIGN_OR_RETURN(const Profile profile,
                            bench::findShrunkProfile(flags_.profile, config_));
    SLUICE_ASSIGN_OR_RETURN(const Profile whole, timing::findProfile(flags_.profile));
    Rate rate = bench::defaultRate(whole, world);
    if (!flags_.rate.empty()) {
      SLUICE_ASSIGN_OR_RETURN(rate, base::parseRate(flags_.rate));
    }
    arena_.reset();
    SLUICE_ASSIGN_OR_RETURN(const auto unlike, parseHostRates(flags_.hostRates, config_));
    SLUICE_ASSIGN_OR_RETURN(
        arena_, bench::Arena::up(world, bench::shrunkRate(rate, config_), unlike, config_));
    progress_.clear();
    fmt::print(forPeople(flags_), "{}\nlab: {}\n", profile.toString(), arena_->toString());
    std::fflush(forPeople(flags_));
    return base::ok();
  }

  const BenchFlags& flags_;
  const base::Config& config_;
  RunProgress progress_;
  bench::ReplayHooks hooks_;
  std::unique_ptr<bench::Arena> arena_;
  std::vector<bench::Figures> rows_;
};

}  // namespace

std::shared_ptr<BenchFlags> addBenchFlags(Program& program, CLI::App* command,
                                          const std::string& algorithms) {
  auto flags = std::make_shared<BenchFlags>();
  flags->algorithms = algorithms;
  addWithDefault(command, "--profile", flags->profile,
                 "Which model: a name of profiles/, as resnet50 or vgg19, or a file");
  addWithDefault(command, "--algorithms,--strategies", flags->algorithms,
                 "Which algorithms, one after the other in each run");
  addWithDefault(command, "--runs", flags->runs, "Runs of each algorithm; the median counts");
  addWithDefault(command, "--iterations", flags->iterations,
                 "Iterations that count in each run; the median does");
  addWithDefault(command, "--warm-up", flags->warmUp, "Iterations before them that do not")
      ->check(CLI::Range(2, 1000));
  addWithDefault(command, "--update", flags->update, "What servers do with the mean gradient");
  command->add_option("--rate", flags->rate,
                      "Speed of each host's link, as 1gbit; default: what two cores can carry");
  command->add_option("--host-rate", flags->hostRates,
                      "Hosts whose links are unlike the others, as 2=300mbit,3=100mbit");
  command->add_option("--json", flags->json,
                      "Write the figures to this file; - for standard output");
  command->add_flag("--lab", flags->inLab, "Run in a lab made for it, and removed at the end");
  command->add_flag(
      "--exact", flags->compareWithReference,
      "Also compare the parameters at the end with those of one process that sums in rank order");
  command->add_flag("--utilisation", flags->watchNetwork,
                    "Add to the JSON how busy the first host's link was, by 10 ms");
  for (const base::Option* option :
       {&option::kFabric, &option::kEncrypt, &option::kCongestionControl, &option::kServers,
        &option::kCredit, &option::kShrink})
    program.addOption(command, *option);
  addAlgorithmFlags(program, command);
  return flags;
}

Result<int> runBench(const BenchFlags& flags, const base::Config& config,
                     const std::vector<BenchCase>& cases) {
  if (!flags.inLab) {
    return Status(Code::kInvalidArgument,
                  "a replay makes a cluster of its own on this machine: say --lab");
  }
  SLUICE_RETURN_IF_ERROR(checkWritable(flags.json));
  const Interruption interruption;
  const size_t algorithms = base::split(flags.algorithms, ',').size();
  Bench bench(flags, config, cases.size() * algorithms * static_cast<size_t>(flags.runs));
  fmt::print(
      forPeople(flags),
      "replay: computing is precise sleeping with the layer times; bytes, sums, updates, gates and "
      "network "
      "are real\n");
  for (const BenchCase& which : cases) SLUICE_RETURN_IF_ERROR(bench.run(which));
  if (flags.json != "-") {
    fmt::print("{}", tableOf(bench.rows()).toText());
    printNotes(bench.rows());
  }
  if (!flags.json.empty()) SLUICE_RETURN_IF_ERROR(writeJson(flags.json, jsonOf(bench.rows())));
  return 0;
}

Result<std::vector<double>> parseNumbers(std::string_view text) {
  std::vector<double> numbers;
  for (const auto piece : base::split(text, ',')) {
    SLUICE_ASSIGN_OR_RETURN(const double number, base::parseNumber(base::trim(piece)));
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace sluice::cli
