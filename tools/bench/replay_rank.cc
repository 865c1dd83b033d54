#include <tools/bench/replay_rank.h>

#include <functional>
#include <memory>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/cpu_time.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/timing/bounds.h>
#include <sluice/session/inside.h>
#include <sluice/transport/fabric/common.h>
#include <tools/bench/interface_counters.h>
#include <tools/bench/replay_memory.h>
#include <tools/bench/shrunk_profile.h>

namespace sluice::bench {
namespace {

// The values of the meters at one moment.
struct Reading {
  double cpu = 0;
  InterfaceBytes wire;
  uint64_t payload = 0;
};

class Meters final {
 public:
  Meters(const Session& session, InterfaceCounters interface)
      : session_(session), interface_(std::move(interface)) {}

  void begin() { begin_ = read(); }

  // Reports everything since begin(), divided by the number of iterations.
  void end(int iterations, RankReport& report) const {
    const Reading now = read();
    report.cpuSeconds = (now.cpu - begin_.cpu) / iterations;
    report.wireBytes = static_cast<double>(now.wire.sent - begin_.wire.sent) / iterations;
    report.payloadBytes = static_cast<double>(now.payload - begin_.payload) / iterations;
  }

 private:
  Reading read() const {
    return {base::seconds(base::processCpuTime()), interface_.read(),
            session::Inside::of(session_).trainer().counters().bytesSent};
  }

  const Session& session_;
  const InterfaceCounters interface_;
  Reading begin_;
};

// The worker's loop: wait, compute forward, compute backward, hand over.
class Worker final {
 public:
  // `factor` says how many times longer the step of this number takes.
  Worker(ReplayPlace& place, std::vector<timing::Layer> layers,
         std::function<double(uint64_t)> factor)
      : place_(place),
        layers_(std::move(layers)),
        factor_(std::move(factor)),
        end_(base::RealClock().now()) {}

  // Returns the end of the last iteration, where the next forward pass can begin.
  TimePoint now() const { return end_; }

  // Runs one forward and one backward pass.
  Status iterate() {
    const double factor = factor_(steps_++);
    for (uint32_t t = 0; t < layers_.size(); ++t) {
      SLUICE_RETURN_IF_ERROR(
          place_.forward(TensorId{t}, base::fromSeconds(factor * layers_[t].forward)));
    }
    for (auto t = static_cast<uint32_t>(layers_.size()); t-- > 0;) {
      SLUICE_RETURN_IF_ERROR(
          place_.backward(TensorId{t}, base::fromSeconds(factor * layers_[t].backward)));
    }
    end_ = place_.finish();
    return base::ok();
  }

 private:
  ReplayPlace& place_;
  const std::vector<timing::Layer> layers_;
  const std::function<double(uint64_t)> factor_;
  TimePoint end_;
  uint64_t steps_ = 0;
};

Status train(const RankTask& task, Session& session, Worker& worker, Meters& meters,
             const std::string& interface, RankReport& report) {
  sleepPrecisely();
  std::unique_ptr<UtilisationSampler> sampler;
  for (int i = 0; i < task.warmUp + task.iterations; ++i) {
    if (i == task.warmUp) {
      meters.begin();
      report.ends.push_back(base::seconds(worker.now().time_since_epoch()));
      if (task.watchNetwork) {
        SLUICE_ASSIGN_OR_RETURN(auto counters, InterfaceCounters::open(interface));
        sampler = std::make_unique<UtilisationSampler>(std::move(counters));
      }
    }
    SLUICE_RETURN_IF_ERROR(worker.iterate());
    if (i < task.warmUp) continue;
    report.ends.push_back(base::seconds(worker.now().time_since_epoch()));
  }
  meters.end(task.iterations, report);
  if (sampler) report.utilisation = sampler->finish();
  return session.drain();  // uses every gradient, as the reference does
}

// Compares the hashes of all ranks: workers must all have the same. An empty reference is not
// compared with.
Status compareParameters(session::JobParts& job, const std::string& hash,
                         const std::string& reference) {
  SLUICE_ASSIGN_OR_RETURN(const auto hashes, job.gather("replay/parameters", hash));
  SLUICE_ASSIGN_OR_RETURN(const auto references, job.gather("replay/reference", reference));
  std::string first;
  for (const auto& each : references) first = first.empty() ? each : first;
  const std::string_view compared = first.empty() ? "the ranks before it" : "one process computes";
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    if (hashes[rank].empty()) continue;  // only serves
    if (first.empty()) first = hashes[rank];
    if (hashes[rank] != first) {
      return {
          Code::kDataLoss,
          fmt::format("rank {} has ended with other parameters than {}: this is a defect of sluice",
                      rank, compared)};
    }
  }
  return base::ok();
}

}  // namespace

Result<RankReport> replayRank(const RankTask& task, const base::Config& config,
                              const base::Config::Values& environment) {
  HostPlace place;
  return replayRank(task, config, environment, place);
}

Result<RankReport> replayRank(const RankTask& task, const base::Config& config,
                              const base::Config::Values& environment, ReplayPlace& place) {
  SLUICE_ASSIGN_OR_RETURN(const Profile profile, findShrunkProfile(task.profile, config));
  base::Config ofAlgorithm = config;
  SLUICE_ASSIGN_OR_RETURN(const auto* algorithm,
                          algorithms::readAlgorithm(config.text(option::kAlgorithm), ofAlgorithm));
  SLUICE_ASSIGN_OR_RETURN(const auto job, session::JobParts::join(config, environment));
  const std::string& interface = config.text(option::kIface);
  SLUICE_ASSIGN_OR_RETURN(auto counters,
                          InterfaceCounters::open(interface.empty() ? "lo" : interface));

  SLUICE_ASSIGN_OR_RETURN(const auto roles,
                          plan::parseRoles(config.text(option::kServers), job->worldSize()));
  SessionOptions options;
  options.model = profile.toModel();
  options.update = task.update;
  const bool isWorker = roles.isWorker(job->rank());
  if (isWorker) place.makeTensors(options.model, job->rank(), options);
  SLUICE_ASSIGN_OR_RETURN(const auto session, session::Inside::open(*job, std::move(options)));

  RankReport report;
  Meters meters(*session, std::move(counters));
  if (isWorker) {
    const uint32_t position = roles.workerPosition(job->rank());
    place.start(*session);
    Worker worker(place, timing::layersOf(profile, task.computeSeconds), [&](uint64_t step) {
      return task.unevenness.factor(position, static_cast<uint32_t>(roles.workers.size()), step);
    });
    const Status trained = train(task, *session, worker, meters, interface, report);
    if (!trained.isOk()) {
      log("bench").error("{}",
                         trained.message());  // at once: leaving a broken job takes seconds
      return trained;
    }
  } else {
    meters.begin();
  }
  SLUICE_RETURN_IF_ERROR(session->leave());  // a rank that only serves stays in here
  if (!isWorker) meters.end(task.warmUp + task.iterations, report);
  // Workers that do not keep step still serve the others after their own end, so this counts, too.
  if (isWorker && !algorithm->keepsRanksEqual) meters.end(task.iterations, report);
  SLUICE_ASSIGN_OR_RETURN(const auto statistics,
                          session::Inside::of(*session).trainer().statistics(fabric::kLoopLimit));
  report.inversionMs = base::seconds(statistics.inversion.quantile(0.99)) * 1e3;
  if (!algorithm->keepsRanksEqual) return report;
  std::string reference;
  const int steps = task.warmUp + task.iterations;
  if (task.compareWithReference && job->rank() == roles.workers.front()) {
    SLUICE_ASSIGN_OR_RETURN(const auto update, optimizer::parseOptimizerSpec(task.update));
    reference = referenceHash(profile.toModel(), roles.workers, update, steps);
  }
  SLUICE_RETURN_IF_ERROR(
      compareParameters(*job, isWorker ? place.parametersHash() : "", reference));
  if (task.compareWithReference && isWorker) report.exactSteps = steps;
  return report;
}

}  // namespace sluice::bench
