#include <sluice/bench/replay_rank.h>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <sodium.h>

#include <sluice/base/options.h>
#include <sluice/bench/interface_counters.h>
#include <sluice/bench/timeline.h>
#include <sluice/plan/bounds.h>
#include <sluice/session/session.h>

namespace sluice::bench {
namespace {

void sleepUntil(TimePoint when) {
  const auto sinceStart = when.time_since_epoch();
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(sinceStart);
  const timespec until{.tv_sec = whole.count(), .tv_nsec = (sinceStart - whole).count()};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

double cpuSeconds() {
  rusage usage{};
  SLUICE_CHECK(::getrusage(RUSAGE_SELF, &usage) == 0);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// Gradients and parameters of a worker. Written before they are used, so that no page is new to the first
// iterations; gradients differ from rank to rank, so that a sum that lacks one shows.
class Memory final {
 public:
  Memory(const plan::Model& model, Rank rank) {
    gradients_.reserve(model.tensors.size());
    parameters_.reserve(model.tensors.size());
    uint32_t seed = 1;
    uint32_t rankSeed = 0x9e3779b9U * (index(rank) + 2);
    for (const auto& tensor : model.tensors) {
      fill(parameters_.emplace_back(tensor.elements), seed);
      fill(gradients_.emplace_back(tensor.elements), rankSeed);
    }
  }

  std::vector<strategy::TensorMemory> tensors() {
    std::vector<strategy::TensorMemory> tensors;
    for (size_t t = 0; t < gradients_.size(); ++t) {
      tensors.push_back(
          {std::as_bytes(std::span(gradients_[t])), std::as_writable_bytes(std::span(parameters_[t]))});
    }
    return tensors;
  }

  std::string parametersHash() const {
    SLUICE_CHECK(sodium_init() >= 0);
    crypto_generichash_state state;
    std::array<unsigned char, crypto_generichash_BYTES> hash{};
    crypto_generichash_init(&state, nullptr, 0, hash.size());
    for (const auto& parameters : parameters_) {
      crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(parameters.data()),
                                parameters.size() * sizeof(float));
    }
    crypto_generichash_final(&state, hash.data(), hash.size());
    return fmt::format("{:02x}", fmt::join(hash, ""));
  }

 private:
  // Between -0.5 and 0.5; any pattern would do.
  static void fill(std::vector<float>& values, uint32_t& seed) {
    for (float& value : values) {
      seed = seed * 1664525U + 1013904223U;
      value = static_cast<float>(seed >> 8) / static_cast<float>(1U << 24) - 0.5F;
    }
  }

  std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<float>> parameters_;
};

// What the meters show at one moment.
struct Reading {
  double cpu = 0;
  InterfaceBytes wire;
  uint64_t payload = 0;
};

class Meters final {
 public:
  Meters(const session::Session& session, InterfaceCounters interface)
      : session_(session), interface_(std::move(interface)) {}

  void begin() { begin_ = read(); }

  // Everything since begin(), over this many iterations.
  void end(int iterations, RankReport& report) const {
    const Reading now = read();
    report.cpuSeconds = (now.cpu - begin_.cpu) / iterations;
    report.wireBytes = static_cast<double>(now.wire.sent - begin_.wire.sent) / iterations;
    report.payloadBytes = static_cast<double>(now.payload - begin_.payload) / iterations;
  }

 private:
  Reading read() const { return {cpuSeconds(), interface_.read(), session_.counters().bytesSent}; }

  const session::Session& session_;
  const InterfaceCounters interface_;
  Reading begin_;
};

// The worker's loop: wait, compute forward, compute backward, hand over.
class Worker final {
 public:
  Worker(session::Session& session, std::vector<plan::Layer> layers)
      : session_(session), layers_(std::move(layers)), timeline_(base::RealClock().now()) {}

  // One forward and one backward pass. Returns how long it took: from the end of the last one to the end of
  // this one, which is from where one forward pass may begin to where the next may.
  Result<double> iterate() {
    const TimePoint begin = timeline_.end();
    for (uint32_t t = 0; t < layers_.size(); ++t) {
      // A gate that is open already has not held anything up, even if this thread has woken up late.
      if (!session_.isReady(TensorId{t})) {
        SLUICE_RETURN_IF_ERROR(session_.wait(TensorId{t}));
        timeline_.holdUntil(base::RealClock().now());
      }
      compute(layers_[t].forward);
    }
    for (auto t = static_cast<uint32_t>(layers_.size()); t-- > 0;) {
      compute(layers_[t].backward);
      session_.gradientReady(TensorId{t});
    }
    return base::seconds(timeline_.end() - begin);
  }

 private:
  void compute(double seconds) {
    if (seconds > 0) sleepUntil(timeline_.compute(base::fromSeconds(seconds)));
  }

  session::Session& session_;
  const std::vector<plan::Layer> layers_;
  Timeline timeline_;
};

Status train(const RankTask& task, session::Session& session, std::vector<plan::Layer> layers, Meters& meters,
             const std::string& interface, RankReport& report) {
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread: wake-ups are not put together
  Worker worker(session, std::move(layers));
  std::unique_ptr<UtilisationSampler> sampler;
  for (int i = 0; i < task.warmUp + task.iterations; ++i) {
    if (i == task.warmUp) {
      meters.begin();
      if (task.watchNetwork) {
        SLUICE_ASSIGN_OR_RETURN(auto counters, InterfaceCounters::open(interface));
        sampler = std::make_unique<UtilisationSampler>(std::move(counters));
      }
    }
    SLUICE_ASSIGN_OR_RETURN(const double seconds, worker.iterate());
    if (i >= task.warmUp) report.iterationSeconds.push_back(seconds);
  }
  meters.end(task.iterations, report);
  if (sampler) report.utilisation = sampler->finish();
  return session.waitAll();
}

// Every rank says what it has; workers must all have the same.
Status compareParameters(session::Job& job, const std::string& hash) {
  SLUICE_ASSIGN_OR_RETURN(const auto hashes, job.gather("replay/parameters", hash));
  std::string first;
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    if (hashes[rank].empty()) continue;  // only serves
    if (first.empty()) first = hashes[rank];
    if (hashes[rank] != first) {
      return {
          Code::kDataLoss,
          fmt::format(
              "rank {} has ended with other parameters than the ranks before it: this is a defect of sluice",
              rank)};
    }
  }
  return base::ok();
}

}  // namespace

Result<RankReport> replayRank(const RankTask& task, const Config& config, const Config::Values& environment) {
  SLUICE_ASSIGN_OR_RETURN(const Profile profile, plan::findProfile(task.profile));
  SLUICE_ASSIGN_OR_RETURN(const auto job, session::Job::join(config, environment));
  const std::string& interface = config.text(option::kIface);
  SLUICE_ASSIGN_OR_RETURN(auto counters, InterfaceCounters::open(interface.empty() ? "lo" : interface));

  SLUICE_ASSIGN_OR_RETURN(const auto roles,
                          plan::parseRoles(config.text(option::kServers), job->worldSize()));
  session::Request request;
  request.model = profile.toModel();
  request.update = task.update;
  std::optional<Memory> memory;
  if (roles.isWorker(job->rank())) {
    memory.emplace(request.model, job->rank());
    request.memory = memory->tensors();
  }
  SLUICE_ASSIGN_OR_RETURN(const auto session, session::Session::open(*job, std::move(request)));

  RankReport report;
  Meters meters(*session, std::move(counters));
  if (memory) {
    SLUICE_RETURN_IF_ERROR(
        train(task, *session, plan::layersOf(profile, task.computeSeconds), meters, interface, report));
  } else {
    meters.begin();
  }
  SLUICE_RETURN_IF_ERROR(session->leave());  // a rank that only serves does so in here
  if (!memory) meters.end(task.warmUp + task.iterations, report);
  report.inversionMs = base::seconds(session->statistics().inversion.quantile(0.99)) * 1e3;
  SLUICE_RETURN_IF_ERROR(compareParameters(*job, memory ? memory->parametersHash() : ""));
  return report;
}

}  // namespace sluice::bench
