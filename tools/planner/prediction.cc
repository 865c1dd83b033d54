#include <tools/planner/prediction.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/reduction/layer_times.h>
#include <sluice/base/options.h>
#include <sluice/data/timing/bounds.h>
#include <tools/bench/fair_figures.h>
#include <tools/sim/simulation.h>

namespace sluice::planner {
namespace {

// Larger models are made small for a simulation; smaller ones would change their shape.
constexpr uint64_t kSimulatedParameters = 400'000;
constexpr uint64_t kMostShrink = 64;
// More messages by iteration would take minutes.
constexpr double kMostMessages = 100'000;
// From here on a simulation has fewer iterations.
constexpr double kManyMessages = 30'000;

uint64_t shrinkFor(const Profile& model) {
  return std::clamp<uint64_t>(model.parameters() / kSimulatedParameters, 1, kMostShrink);
}

double messagesOf(const plan::Plan& plan) {
  const auto others = static_cast<double>(plan.roles().world - 1);
  return 2 * others * static_cast<double>(plan.slices().size());
}

// Returns landings, buffers of connections, and the copies that some algorithms keep.
double memoryOf(const Candidate& candidate, const base::Config& config, const plan::Plan& plan) {
  constexpr double kBytesPerPeer = 4 * 65536.0;  // four incoming connections
  constexpr double kBytesPerPart = 25;           // of a worker's part of a slice
  const auto model = static_cast<double>(plan.model().bytes());
  double copies = 1;
  if (candidate.algorithm->delaysResults || !candidate.algorithm->keepsRanksEqual) copies += 1;
  if (config.isOn(option::kDgc)) copies += 2;  // momentum and what was not sent yet
  return copies * model + kBytesPerPart * static_cast<double>(plan.slices().size()) +
         kBytesPerPeer * (plan.roles().world - 1);
}

sim::SimulationOptions simulationOf(const Question& question, const Candidate& candidate,
                                    const base::Config& config, double messages) {
  const bool keepsStep = candidate.algorithm->keepsRanksEqual;
  const bool isLong = messages > kManyMessages;
  sim::SimulationOptions job;
  job.profile = question.profile;
  job.algorithm = candidate.algorithm->name;
  job.computeSeconds = question.computeSeconds;
  job.otherSeconds = question.otherSeconds;
  // Workers that do not keep step take longer to become steady.
  job.warmUp = isLong ? 1 : 2;
  job.iterations = isLong ? 2 : keepsStep ? 3 : 8;
  job.slowerHosts = question.cluster.slowerHosts;
  job.network = question.cluster.network;
  job.costs = question.costs;
  job.config = config;
  job.isInterrupted = question.isInterrupted;
  return job;
}

Prediction of(const sim::SimulationResult& result, Prediction prediction, Means means) {
  prediction.means = means;
  prediction.iterationSeconds = result.iterationSeconds;
  prediction.boundSeconds = result.boundSeconds;
  prediction.bytes = result.bytes;
  prediction.messages = result.messages;
  prediction.busiestLoop = result.busiestLoop;
  return prediction;
}

// Returns empty if the algorithm does not reduce in groups.
Result<std::optional<Prediction>> byFormula(const Question& question, const base::Config& config,
                                            const plan::Plan& plan, Prediction prediction) {
  SLUICE_ASSIGN_OR_RETURN(const auto seconds, algorithms::plannedSeconds(config, plan.spec()));
  if (!seconds) return std::optional<Prediction>();
  prediction.means = Means::kFormula;
  prediction.iterationSeconds = *seconds + question.otherSeconds;
  const auto layers = timing::layersOf(question.model, question.computeSeconds);
  const Rate payload = timing::payloadRate(question.cluster.network.rate);
  prediction.boundSeconds =
      std::max(timing::p3Bound(layers, timing::shardedWire(plan.roles().world, payload)),
               question.computeSeconds + question.otherSeconds);
  return std::optional(std::move(prediction));
}

}  // namespace

std::string_view name(Means means) {
  constexpr std::array<std::string_view, 3> kNames{"simulation", "simulation by racks", "formula"};
  return kNames[static_cast<size_t>(means)];
}

Result<base::Config> configFor(const Question& question) {
  base::Config config = question.config;
  const Rate payload = timing::payloadRate(question.cluster.network.rate);
  SLUICE_RETURN_IF_ERROR(
      bench::setKnownCosts(question.profile, question.computeSeconds, payload, config));
  return config;
}

Result<std::optional<Prediction>> predict(const Question& question, const Candidate& candidate) {
  SLUICE_ASSIGN_OR_RETURN(base::Config config, configFor(question));
  SLUICE_RETURN_IF_ERROR(candidate.applyTo(config));
  SLUICE_ASSIGN_OR_RETURN(
      const plan::Roles roles,
      plan::parseRoles(config.text(option::kServers), question.cluster.network.hosts));
  SLUICE_ASSIGN_OR_RETURN(const plan::Plan plan,
                          planOf(*candidate.algorithm, config, question.model.toModel(), roles));
  Prediction prediction{.candidate = candidate,
                        .sendsEverything = bench::sendsEverything(*candidate.algorithm, config),
                        .memoryBytes = memoryOf(candidate, config, plan)};
  const double messages = messagesOf(plan);

  // The simulation calculates the rate for merging itself, from that of its shrunk network.
  base::Config shrunk = question.config;
  SLUICE_RETURN_IF_ERROR(candidate.applyTo(shrunk));
  SLUICE_RETURN_IF_ERROR(shrunk.set(option::kShrink, fmt::to_string(shrinkFor(question.model))));
  sim::SimulationOptions job = simulationOf(question, candidate, shrunk, messages);
  if (messages <= kMostMessages) {
    SLUICE_ASSIGN_OR_RETURN(const auto result, sim::simulate(job));
    return std::optional(of(result, std::move(prediction), Means::kSimulation));
  }
  job.fidelity = sim::Fidelity::kRacks;
  const auto racks = sim::simulate(job);
  if (racks.isOk()) return std::optional(of(*racks, std::move(prediction), Means::kRacks));
  if (racks.status().code() == Code::kCancelled) return racks.status();
  return byFormula(question, config, plan, std::move(prediction));
}

}  // namespace sluice::planner
