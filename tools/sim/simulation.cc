#include <tools/sim/simulation.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <vector>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/cpu_time.h>
#include <sluice/base/options.h>
#include <sluice/base/random.h>
#include <sluice/data/timing/bounds.h>
#include <tools/bench/fair_figures.h>
#include <tools/bench/replay_memory.h>
#include <tools/bench/shrunk_profile.h>
#include <tools/sim/cluster_bound.h>
#include <tools/sim/exact_memory.h>
#include <tools/sim/host_trace.h>
#include <tools/sim/rack_simulation.h>
#include <tools/sim/simgrid_network.h>
#include <tools/sim/simulated_host.h>

namespace sluice::sim {
namespace {

constexpr uint64_t kEventsBetweenLooks = 1 << 16;  // at the user's Ctrl-C

Result<plan::Plan> planFor(const SimulationOptions& options, const algorithms::Algorithm& algorithm,
                           const base::Config& config, const Model& model) {
  plan::PlanSpec spec;
  spec.model = model;
  SLUICE_ASSIGN_OR_RETURN(spec.roles,
                          plan::parseRoles(config.text(option::kServers), options.network.hosts));
  spec.strategy = algorithm.name;
  SLUICE_RETURN_IF_ERROR(algorithm.choose(config, spec));
  if (!options.network.topology.isStar())
    spec.slicing.hostsPerRack = options.network.topology.hostsPerRack;
  return plan::Plan::make(std::move(spec));
}

Result<std::unique_ptr<Network>> makeNetwork(EventQueue& events, const SimulationOptions& options) {
  if (options.network.model == NetworkModel::kSegments)
    return std::unique_ptr<Network>(std::make_unique<SegmentNetwork>(events, options.network));
  if (!options.faults.empty() || options.randomCuts > 0) {
    return Status(Code::kInvalidArgument,
                  "--network simgrid cannot cut links or lose hosts: leave out the faults");
  }
  return makeSimgridNetwork(events, options.network);
}

// One job from its start to its end.
class Job final : private EventTarget {
 public:
  // REQUIRES: `events` and `network` outlive this.
  Job(EventQueue& events, Network& network, const SimulationOptions& options,
      const plan::Plan& plan, const algorithms::Algorithm& algorithm, const base::Config& config,
      const optimizer::OptimizerSpec& update)
      : options_(options),
        plan_(plan),
        update_(update),
        shrink_(static_cast<uint64_t>(config.integer(option::kShrink))),
        events_(events),
        network_(network),
        hub_(events_, network_,
             {.worldSize = options.network.hosts, .costs = options.costs, .shrink = shrink_}),
        parts_{events_, hub_, plan, algorithm, config, update_, options.costs, shrink_} {}

  Status run(std::span<const timing::Layer> layers) {
    SLUICE_RETURN_IF_ERROR(makeHosts());
    const auto& workers = plan_.roles().workers;
    working_ = workers.size();
    for (uint32_t i = 0; i < workers.size(); ++i) {
      hosts_[index(workers[i])]->train(
          {.layers = layers,
           .steps = steps(),
           .otherSeconds = options_.otherSeconds,
           .factor = [this, i](uint64_t s) { return computeFactor(options_, i, plan_, s); },
           .onEnd = [this] { --working_; }});
    }
    scheduleFaults();
    while (working_ > 0) {
      if (!events_.runNext()) return stuck();
      if (events_.eventsRun() % kEventsBetweenLooks == 0 && options_.isInterrupted())
        return {Code::kCancelled, "interrupted"};
    }
    for (const Rank worker : workers) {
      const Status& status = hosts_[index(worker)]->worker().status();
      if (!status.isOk() && status.code() != Code::kCancelled)
        return status.withContext(fmt::format("host {}", worker));
    }
    return options_.isExact ? compareWithOneProcess() : base::ok();
  }

  Status writeTraces() const {
    std::vector<TracedHost> traced;
    for (const auto& [rank, recorder] : recorders_) traced.push_back({rank, &recorder});
    if (traced.empty()) return base::ok();
    return writeHostTraces(options_.traceDirectory, plan_.model(), traced);
  }

  Status report(bench::Measure measure, SimulationResult& result) const {
    const double all = steps();
    result.messages = static_cast<double>(hub_.messages()) / all;
    result.bytes = static_cast<double>(network_.counters().bytes) / all;
    result.segments = network_.counters().segments;
    result.segmentsDropped = network_.counters().dropped;
    result.traceHash = hub_.traceHash();
    std::vector<bench::RankReport> reports;
    for (const auto& host : hosts_) {
      reports.push_back(reportOf(*host));
      result.busiestLoop =
          std::max(result.busiestLoop, base::seconds(host->loop().busy()) /
                                           base::seconds(events_.now().time_since_epoch()));
    }
    SLUICE_ASSIGN_OR_RETURN(const auto figures, bench::combineRanks(reports, measure));
    result.iterationSeconds = figures.iterationSeconds;
    result.inversionMs = figures.inversionMs;
    return base::ok();
  }

 private:
  bench::RankReport reportOf(const SimulatedHost& host) const {
    bench::RankReport report;
    report.inversionMs = base::seconds(host.strategy().statistics().inversion.quantile(0.99)) * 1e3;
    // A host that was lost has no iterations that count.
    if (!plan_.roles().isWorker(host.rank()) || !host.worker().status().isOk()) return report;
    for (const TimePoint end : host.worker().ends() | std::views::drop(options_.warmUp))
      report.ends.push_back(base::seconds(end.time_since_epoch()));
    return report;
  }

  void scheduleFaults() {
    faults_ = options_.faults;
    const Duration within = base::fromSeconds(options_.computeSeconds * steps());
    std::ranges::copy(
        drawCuts(options_.network.seed, options_.randomCuts, options_.network.hosts, within),
        std::back_inserter(faults_));
    for (size_t i = 0; i < faults_.size(); ++i) {
      const PlannedFault& fault = faults_[i];
      events_.at(TimePoint(fault.at), *this, 2 * i);
      if (fault.kind == PlannedFault::Kind::kLinkRate)
        events_.at(TimePoint(fault.at + fault.length), *this, 2 * i + 1);
    }
  }
  void onEvent(uint64_t what) override {
    const PlannedFault& now = faults_[what / 2];
    const bool isEnd = what % 2 == 1;
    switch (now.kind) {
      case PlannedFault::Kind::kHostLost: return lose(*hosts_[now.host]);
      case PlannedFault::Kind::kLinkCut:
        return network_.cut(HostId{now.host}, events_.now() + now.length);
      case PlannedFault::Kind::kLinkRate:
        return network_.setRate(HostId{now.host},
                                isEnd ? std::nullopt : std::optional<Rate>(now.rate));
    }
  }

  // All hosts learn of the loss, those that do not talk to the host too: heartbeats, which are not
  // simulated, spread the word.
  void lose(SimulatedHost& lost) {
    lost.die();
    for (const auto& host : hosts_) {
      if (host.get() != &lost) host->hearOfLoss(lost.rank());
    }
  }

  int steps() const { return options_.warmUp + options_.iterations; }

  Status makeHosts() {
    const uint32_t memories = options_.isExact ? options_.network.hosts : 1;
    for (uint32_t i = 0; i < memories; ++i) {
      memories_.push_back(std::make_unique<bench::ReplayMemory>(plan_.model(), Rank{i}));
      tensors_.push_back(memories_.back()->tensors());
    }
    for (uint32_t i = 0; i < options_.network.hosts; ++i) {
      SLUICE_ASSIGN_OR_RETURN(
          auto host,
          SimulatedHost::make(parts_, Rank{i}, tensors_[options_.isExact ? i : 0], recorderFor(i)));
      hosts_.push_back(std::move(host));
    }
    return base::ok();
  }

  // Returns null if the host is not traced.
  trace::Recorder* recorderFor(uint32_t host) {
    const auto& traced = options_.tracedHosts;
    if (options_.traceDirectory.empty()) return nullptr;
    if (!traced.empty() && std::ranges::find(traced, host) == traced.end()) return nullptr;
    const auto capacity = static_cast<size_t>(options_.config.integer(option::kTraceEvents));
    return &recorders_.try_emplace(Rank{host}, capacity).first->second;
  }

  // Nothing is left to happen, and somebody still waits: a message was lost for good.
  Status stuck() const {
    const auto& workers = plan_.roles().workers;
    const Rank waiting = *std::ranges::find_if(
        workers, [&](Rank worker) { return !hosts_[index(worker)]->worker().hasEnded(); });
    return {Code::kInternal,
            fmt::format("the simulated job stands still: host {} waits for {}; this is a defect "
                        "of sluice",
                        waiting, hosts_[index(waiting)]->describeWait())};
  }

  Status compareWithOneProcess() const {
    const std::string expected =
        bench::referenceHash(plan_.model(), plan_.roles().workers, update_, steps());
    for (const Rank worker : plan_.roles().workers) {
      if (memories_[index(worker)]->parametersHash() == expected) continue;
      return {Code::kDataLoss,
              fmt::format("host {} has ended with other parameters than one process computes: this "
                          "is a defect of sluice",
                          worker)};
    }
    return base::ok();
  }

  const SimulationOptions& options_;
  const plan::Plan& plan_;
  const optimizer::OptimizerSpec& update_;
  const uint64_t shrink_;
  EventQueue& events_;
  Network& network_;
  SimHub hub_;
  const SimulatedJobParts parts_;
  std::vector<std::unique_ptr<bench::ReplayMemory>> memories_;  // of each host, or one for all
  std::vector<std::vector<TensorMemory>> tensors_;
  std::map<Rank, trace::Recorder> recorders_;  // of the hosts that are traced
  std::vector<std::unique_ptr<SimulatedHost>> hosts_;
  std::vector<PlannedFault> faults_;
  size_t working_ = 0;
};

Result<SimulationResult> simulateHosts(const SimulationOptions& options, const plan::Plan& plan,
                                       const algorithms::Algorithm& algorithm,
                                       const base::Config& config,
                                       std::span<const timing::Layer> layers) {
  SLUICE_ASSIGN_OR_RETURN(const auto update, optimizer::parseOptimizerSpec(options.update));
  EventQueue events;
  SLUICE_ASSIGN_OR_RETURN(const auto network, makeNetwork(events, options));
  Job job(events, *network, options, plan, algorithm, config, update);
  const Status ran = job.run(layers);
  SLUICE_RETURN_IF_ERROR(job.writeTraces());  // also those of a job that has failed
  SLUICE_RETURN_IF_ERROR(ran);
  SimulationResult result;
  SLUICE_RETURN_IF_ERROR(job.report(bench::measureFor(algorithm, options.unevenness), result));
  return result;
}

double slowestFactor(const SimulationOptions& options) {
  double most = 1;
  for (const auto& [host, factor] : options.slowerHosts) most = std::max(most, factor);
  return most;
}

Status checkHosts(const SimulationOptions& options) {
  const uint32_t hosts = options.network.hosts;
  for (const PlannedFault& fault : options.faults) {
    if (fault.host >= hosts)
      return {Code::kInvalidArgument, fmt::format("there is no host {} to fail", fault.host)};
  }
  for (const uint32_t host : options.tracedHosts) {
    if (host >= hosts)
      return {Code::kInvalidArgument, fmt::format("there is no host {} to trace", host)};
  }
  if (options.config.integer(option::kTraceEvents) < 1)
    return {Code::kInvalidArgument, "trace-events must be at least 1"};
  for (const auto& [host, factor] : options.slowerHosts) {
    if (host >= hosts || !(factor > 0)) {
      return {Code::kInvalidArgument,
              fmt::format("host {} cannot compute {:g} times longer", host, factor)};
    }
  }
  return options.network.topology.check(hosts);
}

}  // namespace

double computeFactor(const SimulationOptions& options, uint32_t worker, const plan::Plan& plan,
                     uint64_t step) {
  const auto workers = static_cast<uint32_t>(plan.roles().workers.size());
  const double chance =
      base::fromZeroToOne(base::splitmix64(options.network.seed, step * workers + worker));
  const auto slower = options.slowerHosts.find(index(plan.roles().workers[worker]));
  return options.unevenness.factor(worker, workers, step) *
         (slower == options.slowerHosts.end() ? 1 : slower->second) *
         (1 + options.computeJitter * chance);
}

Result<SimulationResult> simulate(const SimulationOptions& options) {
  if (options.network.hosts < 2 || options.warmUp < 0 || options.iterations < 1) {
    return Status(Code::kInvalidArgument,
                  "a simulation needs two hosts and one iteration at least");
  }
  SLUICE_RETURN_IF_ERROR(checkHosts(options));
  base::Config config = options.config;
  SLUICE_ASSIGN_OR_RETURN(const Profile profile, bench::findShrunkProfile(options.profile, config));
  SLUICE_ASSIGN_OR_RETURN(const Profile whole, timing::findProfile(options.profile));
  if (options.isExact && config.integer(option::kShrink) != 1)
    return Status(Code::kInvalidArgument, "--exact sums whole tensors: leave out --shrink");
  SLUICE_ASSIGN_OR_RETURN(const auto* algorithm,
                          algorithms::readAlgorithm(options.algorithm, config));
  if (options.isExact && !algorithm->keepsRanksEqual) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("--exact: ranks do not end with equal parameters with {}", algorithm->name));
  }
  if (options.isExact) {
    const uint64_t needed = exactBytes(profile.toModel().bytes(), options.network.hosts);
    SLUICE_RETURN_IF_ERROR(checkMemory(needed, availableBytes(), options.network.hosts));
  }
  const Rate payload = timing::payloadRate(options.network.rate);
  SLUICE_RETURN_IF_ERROR(bench::setKnownCosts(options.profile, options.computeSeconds,
                                              bench::shrunkRate(payload, config), config));
  SLUICE_ASSIGN_OR_RETURN(const plan::Plan plan,
                          planFor(options, *algorithm, config, profile.toModel()));

  const auto layers = timing::layersOf(whole, options.computeSeconds);
  const Duration begin = base::threadCpuTime();
  SLUICE_ASSIGN_OR_RETURN(
      SimulationResult result,
      options.fidelity == Fidelity::kRacks
          ? simulateRacks(options, plan, static_cast<uint64_t>(config.integer(option::kShrink)),
                          layers)
          : simulateHosts(options, plan, *algorithm, config, layers));
  result.sendsEverything = bench::sendsEverything(*algorithm, config);
  result.boundSeconds = std::max(
      timing::p3Bound(
          layers,
          {.start = 0, .perByte = busiestLine(options.network, plan.roles()).secondsPerModelByte}),
      slowestFactor(options) * (options.computeSeconds + options.otherSeconds));
  result.cpuSeconds = base::seconds(base::threadCpuTime() - begin) /
                      static_cast<double>(options.warmUp + options.iterations);
  return result;
}

}  // namespace sluice::sim
