#include <sluice/session/session.h>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/session/agreement.h>
#include <sluice/session/make_fabric.h>
#include <sluice/strategy/algorithms.h>

namespace sluice::session {
namespace {

Result<plan::Plan> makePlan(const Request& request, const shard::OptimizerSpec& update, const Job& job) {
  const Config& config = job.config();
  SLUICE_ASSIGN_OR_RETURN(const auto* algorithm, strategy::findAlgorithm(config.text(option::kAlgorithm)));
  plan::PlanSpec spec;
  spec.model = request.model;
  spec.strategy = algorithm->name;
  spec.settings["update"] = shard::canonicalText(update);
  SLUICE_ASSIGN_OR_RETURN(spec.roles, plan::parseRoles(config.text(option::kServers), job.worldSize()));
  SLUICE_RETURN_IF_ERROR(algorithm->choose(config, spec));
  return plan::Plan::make(std::move(spec));
}

Status checkMemory(const Request& request, const plan::Plan& plan, Rank rank) {
  if (!plan.roles().isWorker(rank)) return base::ok();
  if (request.memory.size() != request.model.tensors.size()) {
    return {Code::kInvalidArgument, fmt::format("{} tensors, but memory for {}", request.model.tensors.size(),
                                                request.memory.size())};
  }
  for (size_t t = 0; t < request.memory.size(); ++t) {
    const auto& tensor = request.model.tensors[t];
    for (const size_t bytes : {request.memory[t].gradient.size(), request.memory[t].result.size()}) {
      if (bytes == tensor.bytes()) continue;
      return {Code::kInvalidArgument, fmt::format("tensor {} needs {} bytes, its memory has {}",
                                                  tensor.toString(), tensor.bytes(), bytes)};
    }
  }
  return base::ok();
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(Job& job, Request request) {
  SLUICE_ASSIGN_OR_RETURN(auto update, shard::parseOptimizerSpec(request.update));
  SLUICE_ASSIGN_OR_RETURN(auto plan, makePlan(request, update, job));
  SLUICE_RETURN_IF_ERROR(checkMemory(request, plan, job.rank()));
  SLUICE_RETURN_IF_ERROR(agreeOn(plan, request.name, job));
  if (job.rank() == Rank{0}) log("session").info("{}", plan.toString());
  const bool isWorker = plan.roles().isWorker(job.rank());
  Training training{std::move(plan), std::move(update),
                    isWorker ? std::move(request.memory) : std::vector<strategy::TensorMemory>{}};
  SLUICE_ASSIGN_OR_RETURN(auto trainer, Trainer::start(std::move(training), job.config(), request.observer,
                                                       [&](fabric::Receiver& receiver) {
                                                         return makeFabric(job, request.name, receiver);
                                                       }));
  return std::unique_ptr<Session>(new Session(job, request.name, std::move(trainer)));
}

bool Session::isWorker() const {
  return plan().roles().isWorker(job_.rank());
}

Status Session::leave() {
  // A lost rank ends the wait by name; a rank that only serves has no other measure of how long training
  // takes.
  constexpr auto kAsLongAsItTakes = std::chrono::hours(24 * 365);
  const Duration atMost =
      isWorker() ? job_.config().duration(option::kWaitTimeout) : Duration(kAsLongAsItTakes);
  return trainer_->leave([&] { return job_.gather("leave/" + name_, "", atMost).status(); });
}

}  // namespace sluice::session
