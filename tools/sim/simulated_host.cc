#include <tools/sim/simulated_host.h>

#include <utility>

#include <sluice/data/gate/gates.h>

namespace sluice::sim {

void SimulatedHost::Observer::onStage(const StageEvent& event) {
  if (recorder_ != nullptr) recorder_->onStage(event);
  if (event.stage != Stage::kReduce && event.stage != Stage::kUpdate) return;
  const uint64_t bytes = parts_.plan.bytesOf(parts_.plan.slice(event.slice)) * parts_.shrink;
  loop_.charge(event.stage == Stage::kUpdate
                   ? parts_.costs.updated(bytes)
                   : parts_.costs.summed(bytes * parts_.plan.roles().workers.size()));
}

void SimulatedHost::Observer::onWait(const WaitEvent& event) {
  if (recorder_ != nullptr) recorder_->onWait(event);
}

SimulatedHost::SimulatedHost(const JobParts& parts, Rank rank, trace::Recorder* recorder)
    : parts_(parts),
      rank_(rank),
      loop_(parts.events),
      observer_(parts, loop_, recorder),
      gates_(gate::tensorNames(parts.plan.model()), {}, [](auto...) {}) {}

Result<std::unique_ptr<SimulatedHost>> SimulatedHost::make(const JobParts& parts, Rank rank,
                                                           std::span<const TensorMemory> memory,
                                                           trace::Recorder* recorder) {
  std::unique_ptr<SimulatedHost> host(new SimulatedHost(parts, rank, recorder));
  std::vector<std::span<const std::byte>> parameters;
  for (const TensorMemory& tensor : memory) parameters.emplace_back(tensor.result);
  host->fabric_ = parts.hub.join(rank, host->loop_, *host);
  const bool isWorker = parts.plan.roles().isWorker(rank);
  SLUICE_ASSIGN_OR_RETURN(
      host->strategy_,
      parts.algorithm.make({.plan = parts.plan,
                            .fabric = *host->fabric_,
                            .gates = host->gates_,
                            .memory = isWorker ? memory : std::span<const TensorMemory>(),
                            .update = parts.update,
                            .parameters = parameters,
                            .config = parts.config,
                            .observer = host->observer_.isNeeded() ? &host->observer_ : nullptr}));
  return host;
}

SimulatedHost::~SimulatedHost() {
  loop_.runNow([this] { fabric_.reset(); });
}

void SimulatedHost::train(ReplayedWorker::Script script) {
  worker_.emplace(ReplayedWorker::Parts{parts_.events, loop_, gates_, *strategy_, observer_,
                                        parts_.plan, rank_},
                  std::move(script));
  worker_->start();
}

std::string SimulatedHost::describeWait() const {
  for (uint32_t t = 0; t < parts_.plan.model().tensors.size(); ++t) {
    if (!gates_.isOpen(TensorId{t}))
      return gates_.describeClosed() + ": " + strategy_->describeWait(TensorId{t});
  }
  return "nothing";
}

Result<fabric::Landing> SimulatedHost::onMessage(Rank from, fabric::Lane lane,
                                                 const wire::Header& header) {
  return strategy_->onMessage(from, lane, header);
}

void SimulatedHost::die() {
  loop_.runNow([this] { fabric_.reset(); });
  loop_.stop();
  if (worker_) worker_->stop({Code::kCancelled, "this host is lost"});
}

void SimulatedHost::hearOfLoss(Rank rank) {
  if (fabric_) fabric_->giveUp(rank, {Code::kPeerLost, "it ended without a goodbye"});
}

void SimulatedHost::onPeerLost(Rank from, const Status& why) {
  if (strategy_->losses().goesOnWithout(from)) return strategy_->losses().forget(from);
  strategy_->fail(why);
  gates_.fail(why);
}

}  // namespace sluice::sim
