#include <sluice/sim/simulation.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/cpu_time.h>
#include <sluice/base/options.h>
#include <sluice/base/random.h>
#include <sluice/bench/figures.h>
#include <sluice/bench/known_costs.h>
#include <sluice/bench/replay_memory.h>
#include <sluice/bench/shrunk_profile.h>
#include <sluice/sim/rack_simulation.h>
#include <sluice/sim/simgrid_network.h>
#include <sluice/sim/simulated_host.h>
#include <sluice/strategy/algorithms/registry.h>
#include <sluice/timing/bounds.h>

namespace sluice::sim {
namespace {

constexpr uint64_t kEventsBetweenLooks = 1 << 16;  // at the user's Ctrl-C

Result<plan::Plan> planFor(const SimulationOptions& options, const strategy::Algorithm& algorithm,
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
      const plan::Plan& plan, const strategy::Algorithm& algorithm, const base::Config& config,
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

  void report(SimulationResult& result) const {
    const double all = steps();
    result.messages = static_cast<double>(hub_.messages()) / all;
    result.bytes = static_cast<double>(network_.counters().bytes) / all;
    result.segments = network_.counters().segments;
    result.segmentsDropped = network_.counters().dropped;
    result.traceHash = hub_.traceHash();
    TimePoint begin{};
    TimePoint end{};
    for (const auto& host : hosts_) {
      result.inversionMs =
          std::max(result.inversionMs,
                   base::seconds(host->strategy().statistics().inversion.quantile(0.99)) * 1e3);
      result.busiestLoop =
          std::max(result.busiestLoop, base::seconds(host->loop().busy()) /
                                           base::seconds(events_.now().time_since_epoch()));
      if (!plan_.roles().isWorker(host->rank()) || !host->worker().status().isOk()) continue;
      const auto& ends = host->worker().ends();
      begin = std::max(begin, ends[static_cast<size_t>(options_.warmUp)]);
      end = std::max(end, ends.back());
    }
    result.iterationSeconds = base::seconds(end - begin) / options_.iterations;
  }

 private:
  void scheduleFaults() {
    faults_ = options_.faults;
    const Duration within = base::fromSeconds(options_.computeSeconds * steps());
    std::ranges::copy(
        drawCuts(options_.network.seed, options_.randomCuts, options_.network.hosts, within),
        std::back_inserter(faults_));
    for (size_t i = 0; i < faults_.size(); ++i) events_.at(TimePoint(faults_[i].at), *this, i);
  }
  void onEvent(uint64_t fault) override {
    const Fault& now = faults_[fault];
    if (now.kind == Fault::Kind::kHostLost) return lose(*hosts_[now.host]);
    network_.cut(HostId{now.host}, events_.now() + now.length);
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
          auto host, SimulatedHost::make(parts_, Rank{i}, tensors_[options_.isExact ? i : 0]));
      hosts_.push_back(std::move(host));
    }
    return base::ok();
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
  const JobParts parts_;
  std::vector<std::unique_ptr<bench::ReplayMemory>> memories_;  // of each host, or one for all
  std::vector<std::vector<TensorMemory>> tensors_;
  std::vector<std::unique_ptr<SimulatedHost>> hosts_;
  std::vector<Fault> faults_;
  size_t working_ = 0;
};

Result<SimulationResult> simulateHosts(const SimulationOptions& options, const plan::Plan& plan,
                                       const strategy::Algorithm& algorithm,
                                       const base::Config& config,
                                       std::span<const timing::Layer> layers) {
  SLUICE_ASSIGN_OR_RETURN(const auto update, optimizer::parseOptimizerSpec(options.update));
  EventQueue events;
  SLUICE_ASSIGN_OR_RETURN(const auto network, makeNetwork(events, options));
  Job job(events, *network, options, plan, algorithm, config, update);
  SLUICE_RETURN_IF_ERROR(job.run(layers));
  SimulationResult result;
  job.report(result);
  return result;
}

}  // namespace

double computeFactor(const SimulationOptions& options, uint32_t worker, const plan::Plan& plan,
                     uint64_t step) {
  const auto workers = static_cast<uint32_t>(plan.roles().workers.size());
  const double chance =
      base::fromZeroToOne(base::splitmix64(options.network.seed, step * workers + worker));
  return options.unevenness.factor(worker, workers, step) * (1 + options.computeJitter * chance);
}

Result<SimulationResult> simulate(const SimulationOptions& options) {
  if (options.network.hosts < 2 || options.warmUp < 0 || options.iterations < 1) {
    return Status(Code::kInvalidArgument,
                  "a simulation needs two hosts and one iteration at least");
  }
  for (const Fault& fault : options.faults) {
    if (fault.host >= options.network.hosts)
      return Status(Code::kInvalidArgument, fmt::format("there is no host {} to fail", fault.host));
  }
  base::Config config = options.config;
  SLUICE_ASSIGN_OR_RETURN(const Profile profile, bench::findShrunkProfile(options.profile, config));
  SLUICE_ASSIGN_OR_RETURN(const Profile whole, timing::findProfile(options.profile));
  if (options.isExact && config.integer(option::kShrink) != 1)
    return Status(Code::kInvalidArgument, "--exact sums whole tensors: leave out --shrink");
  SLUICE_ASSIGN_OR_RETURN(const auto* algorithm,
                          strategy::readAlgorithm(options.algorithm, config));
  if (options.isExact && !algorithm->keepsRanksEqual) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("--exact: ranks do not end with equal parameters with {}", algorithm->name));
  }
  const Rate payload = timing::payloadRate(options.network.rate);
  SLUICE_RETURN_IF_ERROR(bench::setKnownCosts(options.profile, options.computeSeconds,
                                              bench::shrunkRate(payload, config), config));
  SLUICE_ASSIGN_OR_RETURN(const plan::Plan plan,
                          planFor(options, *algorithm, config, profile.toModel()));

  const auto layers = timing::layersOf(whole, options.computeSeconds);
  const double models = std::max(bench::modelsOverBusiestLink(plan.roles()),
                                 options.network.topology.modelsOverUplink(options.network.hosts));
  const timing::WireCost wire{.start = 0,
                              .perByte = models * 8 / static_cast<double>(payload.bitsPerSecond)};
  const Duration begin = base::threadCpuTime();
  SLUICE_ASSIGN_OR_RETURN(
      SimulationResult result,
      options.fidelity == Fidelity::kRacks
          ? simulateRacks(options, plan, static_cast<uint64_t>(config.integer(option::kShrink)),
                          layers)
          : simulateHosts(options, plan, *algorithm, config, layers));
  result.boundSeconds = timing::p3Bound(layers, wire);
  result.cpuSeconds = base::seconds(base::threadCpuTime() - begin) /
                      static_cast<double>(options.warmUp + options.iterations);
  return result;
}

}  // namespace sluice::sim
