#include <tools/bench/fabric/bench.h>

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/median.h>
#include <tools/bench/fabric/traffic.h>
#include <tools/bench/rank_messages.h>
#include <tools/bench/yardstick.h>

namespace sluice::bench {
namespace {

constexpr double kIperfSeconds = 2;
constexpr double kUcxSeconds = 2;    // about as long as the others
constexpr double kGuessedGbit = 20;  // of a link that is not shaped
constexpr auto kRankLimit = std::chrono::seconds(120);
constexpr int kFifoRounds = 4;  // in each sample; they take long and hardly differ

std::vector<int> firstHosts(int count) {
  std::vector<int> hosts(static_cast<size_t>(count));
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

std::vector<Flow> ringOf(int hosts) {
  std::vector<Flow> flows;
  for (int host = 0; host < hosts; ++host) flows.emplace_back(host, (host + 1) % hosts);
  return flows;
}

// Returns the value below which `share` of the values lie.
double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

class Bench final {
 public:
  Bench(const lab::Lab& lab, const FabricBenchOptions& options) : lab_(lab), options_(options) {}

  Status pair(FabricFigures& figures) {
    Samples sluice{"sluice_gbit"};
    Samples ucx{"ucx_gbit"};
    Samples iperf{"iperf3_gbit"};
    for (int i = 0; i < options_.samples; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const auto reports,
                              runRanks({.which = FabricCase::kPair}, /*hosts=*/2));
      sluice.values.push_back(reports[1].receivedGbit);
      SLUICE_RETURN_IF_ERROR(addIperf({{0, 1}}, iperf));
      if (options_.fabric == "ucx") {
        say("ucx_perftest");
        SLUICE_ASSIGN_OR_RETURN(const double gbit,
                                ucxGbit(lab_, {0, 1}, kMessageBytes, ucxMessages()));
        ucx.values.push_back(gbit);
      }
    }
    figures.samples = {sluice, ucx, iperf};
    figures.derived = {{"over_ucx", ratio(sluice, ucx)}, {"over_iperf3", ratio(sluice, iperf)}};
    return base::ok();
  }

  Status allToAll(FabricFigures& figures) {
    Samples sluice{"sluice_gbit"};
    Samples ring{"iperf3_ring_gbit"};
    for (int i = 0; i < options_.samples; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const auto reports,
                              runRanks({.which = FabricCase::kAllToAll}, options_.hosts));
      double total = 0;
      for (const FabricReport& report : reports) total += report.receivedGbit;
      sluice.values.push_back(total);
      SLUICE_RETURN_IF_ERROR(addIperf(ringOf(options_.hosts), ring));
    }
    figures.samples = {sluice, ring};
    figures.derived = {{"over_iperf3_ring", ratio(sluice, ring)}};
    return base::ok();
  }

  Status overtake(FabricFigures& figures) {
    Samples fifo{"fifo_ms"};
    Samples urgent{"p50_ms"};
    Samples iperf{"iperf3_gbit"};
    for (int i = 0; i < options_.samples; ++i) {
      for (const bool isFifo : {true, false}) {
        FabricTask task{.which = FabricCase::kOvertake, .isFifo = isFifo};
        task.rounds = isFifo ? kFifoRounds : options_.rounds;
        SLUICE_ASSIGN_OR_RETURN(const auto reports, runRanks(task, /*hosts=*/2));
        auto& values = isFifo ? fifo.values : urgent.values;
        std::ranges::copy(reports[1].urgentMs, std::back_inserter(values));
      }
      SLUICE_RETURN_IF_ERROR(addIperf({{0, 1}}, iperf));
    }
    figures.samples = {fifo, urgent};
    figures.derived = {{"p99_ms", percentile(urgent.values, 0.99)}};
    figures.beside = fmt::format("fifo / p50 {:.1f}; iperf3 reaches {:.2f} Gbit/s",
                                 base::median(fifo.values) / base::median(urgent.values),
                                 base::median(iperf.values));
    return base::ok();
  }

 private:
  static double ratio(const Samples& a, const Samples& b) {
    return b.values.empty() ? 0 : base::median(a.values) / base::median(b.values);
  }
  void say(std::string_view what) const {
    if (options_.onSample) options_.onSample(what);
  }
  Status addIperf(const std::vector<Flow>& flows, Samples& samples) {
    say("iperf3");
    SLUICE_ASSIGN_OR_RETURN(const Rate rate,
                            measureGoodput(lab_, flows, base::fromSeconds(kIperfSeconds)));
    samples.values.push_back(static_cast<double>(rate.bitsPerSecond) * 1e-9);
    return base::ok();
  }
  size_t ucxMessages() const {
    const double gbit = options_.rate.bitsPerSecond == 0
                            ? kGuessedGbit
                            : static_cast<double>(options_.rate.bitsPerSecond) * 1e-9;
    return static_cast<size_t>(gbit * 1e9 / 8 * kUcxSeconds / kMessageBytes);
  }

  Result<std::vector<FabricReport>> runRanks(FabricTask task, int hosts) {
    say("sluice");
    task.seconds = options_.seconds;
    std::vector<std::optional<FabricReport>> reports(static_cast<size_t>(hosts));
    lab::RunOptions run;
    run.command = options_.rankCommand;
    run.command.push_back(task.toText());
    run.hosts = firstHosts(hosts);
    run.timeout = kRankLimit;
    run.environment = variablesFor(options_.config);
    std::string firstError;
    run.onLine = [&](int rank, lab::Stream stream, std::string_view line) {
      if (stream == lab::Stream::kOut) {
        if (auto report = parseFabricReport(line))
          reports[static_cast<size_t>(rank)] = *std::move(report);
      } else if (firstError.empty()) {
        firstError = fmt::format("rank {}: {}", rank, line);
      }
    };
    SLUICE_ASSIGN_OR_RETURN(const int exitCode, lab_.run(std::move(run)));
    if (exitCode != 0 ||
        !std::ranges::all_of(reports, [](const auto& r) { return r.has_value(); })) {
      return Status(Code::kInternal,
                    fmt::format("{}: exit code {}: {}", name(task.which), exitCode, firstError));
    }
    std::vector<FabricReport> all;
    for (auto& report : reports) all.push_back(*std::move(report));
    return all;
  }

  const lab::Lab& lab_;
  const FabricBenchOptions& options_;
};

std::string rateText(Rate rate) {
  return rate.bitsPerSecond == 0 ? "unshaped" : base::formatRate(rate);
}

}  // namespace

Result<FabricFigures> benchFabric(const lab::Lab& lab, const FabricBenchOptions& options) {
  if (options.samples < 1) return Status(Code::kInvalidArgument, "at least one sample is needed");
  FabricFigures figures;
  figures.options = options;
  Bench bench(lab, options);
  switch (options.which) {
    case FabricCase::kPair: SLUICE_RETURN_IF_ERROR(bench.pair(figures)); break;
    case FabricCase::kAllToAll: SLUICE_RETURN_IF_ERROR(bench.allToAll(figures)); break;
    case FabricCase::kOvertake: SLUICE_RETURN_IF_ERROR(bench.overtake(figures)); break;
    case FabricCase::kIdle:
      return Status(Code::kInvalidArgument, "the case idle measures nothing; choose another");
  }
  return figures;
}

nlohmann::ordered_json toJson(const FabricFigures& figures) {
  const auto& options = figures.options;
  nlohmann::ordered_json json{{"case", name(options.which)},
                              {"fabric", options.fabric},
                              {"encrypt", options.encrypt},
                              {"rate", rateText(options.rate)}};
  for (const auto& [name, values] : figures.samples) {
    json[name] =
        values.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(base::median(values));
  }
  for (const auto& [name, value] : figures.derived) {
    json[name] = value == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
  }
  return json;
}

std::string toText(const FabricFigures& figures) {
  const auto& options = figures.options;
  std::string text = fmt::format("{} on {}, encrypt {}, {}:", name(options.which), options.fabric,
                                 options.encrypt, rateText(options.rate));
  for (const auto& [name, values] : figures.samples) {
    if (values.empty()) continue;
    const auto [least, greatest] = std::ranges::minmax(values);
    text += fmt::format("  {} {:.2f} ({:.2f} to {:.2f}, {} samples)", name, base::median(values),
                        least, greatest, values.size());
  }
  for (const auto& [name, value] : figures.derived) {
    if (value != 0) text += fmt::format("  {} {:.3f}", name, value);
  }
  return figures.beside.empty() ? text : text + "  " + figures.beside;
}

}  // namespace sluice::bench
