#include <sluice/session/trainer.h>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/await.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/session/elastic/epochs.h>
#include <sluice/session/other_ranks.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::session {
namespace {

// A rank that has left in good order has sent all that it owed. A message that has not come within
// this time never will.
constexpr auto kAfterGoodbye = std::chrono::seconds(3);

// A loop that has been busy for less is not why others wait.
constexpr Duration kWorthSaying = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::start(TrainingSpec training, const base::Config& config,
                                                StageObserver* observer,
                                                const MakeFabric& makeFabric) {
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(training), config, observer));
  SLUICE_ASSIGN_OR_RETURN(trainer->fabric_, makeFabric(*trainer));
  SLUICE_RETURN_IF_ERROR(trainer->begin());
  return trainer;
}

Trainer::Trainer(TrainingSpec training, const base::Config& config, StageObserver* observer)
    : training_(std::move(training)),
      memory_(training_.memory),
      config_(config),
      observer_(observer),
      gates_(
          gate::tensorNames(training_.plan.model()),
          {.atMost = config.duration(option::kWaitTimeout),
           .stallAfter = config.duration(option::kStallAfter),
           .interruption = training_.interruption,
           .otherRanks = [this] { return describeOthers(); },
           .thread = training_.thread},
          [this](TensorId tensor, Step step, Duration waited) {
            reportStall(tensor, step, waited);
          },
          observer),
      coming_(training_.plan) {
  if (memory_.empty()) memory_.resize(training_.plan.model().tensors.size());
}

Trainer::~Trainer() {
  if (fabric_ == nullptr) return;
  // The end has an order. First nothing new begins on the loop; then the fabric goes, and its
  // last completions still find gates, strategy and broadcasts alive; the strategy goes last,
  // on the loop, as others may still call it there.
  fabric::runBeforeFreeing(fabric_->loop(),
                           [this] {  // after all that the training thread has posted
                             isEnding_ = true;
                             if (training_.epochs != nullptr) training_.epochs->stop();
                             for (const TimerId timer : timers_) fabric_->loop().cancel(timer);
                           });
  // If another rank is to blame, this one says goodbye: ranks that heard of its end first would
  // otherwise take it for the lost one.
  if (gates_.error().code() == Code::kPeerLost) (void)fabric::closeAndWait(*fabric_);
  Loop& loop = fabric_->loop();
  fabric_.reset();
  // The strategy goes on the loop, where an engine that is not on the fabric may still be at work.
  fabric::runBeforeFreeing(loop, [this] { strategy_.reset(); });
}

Status Trainer::begin() {
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(fabric_->loop(), [this] {
    broadcast_ = std::make_unique<Broadcast>(*fabric_);
    resumeDeferred();
  }));

  // A rank that only serves keeps its own copy of the first parameters until the strategy has taken
  // its slices.
  std::vector<std::vector<std::byte>> own;
  std::vector<std::span<const std::byte>> firstParameters;
  if (training_.update.optimizer->publishes() == optimizer::Publishes::kParameters) {
    const auto& tensors = training_.plan.model().tensors;
    for (size_t t = 0; t < tensors.size(); ++t) {
      const auto place = training_.memory.empty() ? std::span(own.emplace_back(tensors[t].bytes()))
                                                  : training_.memory[t].result;
      SLUICE_RETURN_IF_ERROR(broadcast(training_.plan.roles().workers.front(), place));
      firstParameters.emplace_back(place);
    }
  }

  // The strategy is made on this thread, since servers allocate about as much memory as the model
  // has. The loop gets it whole.
  SLUICE_ASSIGN_OR_RETURN(auto made, makeStrategy(firstParameters));
  return fabric::runAndWait(fabric_->loop(), [&] {
    strategy_ = std::move(made);
    if (training_.epochs != nullptr) training_.epochs->begin();
    resumeDeferred();
  });
}

Result<std::unique_ptr<algorithms::Strategy>> Trainer::makeStrategy(
    std::span<const std::span<const std::byte>> firstParameters) {
  SLUICE_ASSIGN_OR_RETURN(const algorithms::Algorithm* algorithm,
                          algorithms::findAlgorithm(training_.plan.spec().strategy));
  Epochs* const epochs = training_.epochs;
  const algorithms::Context context{
      .plan = epochs != nullptr ? epochs->plan() : training_.plan,
      .fabric = *fabric_,
      .gates = gates_,
      .memory = memory_,
      .update = training_.update,
      .parameters = firstParameters,
      .config = config_,
      .observer = observer_,
      .updatesWaitForWord = training_.updatesWaitForWord,
      .collective = training_.collective,
      .onRefused = [this](Rank from, const Status& why) { refused(from, why); },
      .results = training_.results};
  if (epochs != nullptr) return epochs->makeStrategy(context, algorithm->make);
  return algorithm->make(context);
}

void Trainer::resumeDeferred() {
  deferred_.resume(*fabric_);
}

Status Trainer::broadcast(Rank root, std::span<std::byte> data) {
  return endBroadcast(beginBroadcast(root, data), data);
}

Trainer::BroadcastUnderway Trainer::beginBroadcast(Rank root, std::span<const std::byte> data) {
  // The broadcast has bytes of its own: a caller that interrupts the wait may free `data`, while
  // the network goes on.
  const auto bytes = std::make_shared<std::vector<std::byte>>(data.size());
  // With members, any of them may have to bring the bytes, if the root is lost.
  if (root == fabric_->rank() || training_.epochs != nullptr)
    std::ranges::copy(data, bytes->begin());
  const auto ended = std::make_shared<std::promise<Status>>();
  if (training_.flight != nullptr) training_.flight->broadcastBegins(root, data.size());
  fabric_->loop().post([this, root, bytes, ended] {
    const auto done = [ended](const Status& status) { ended->set_value(status); };
    if (training_.epochs != nullptr) return training_.epochs->broadcast(root, bytes, done);
    broadcast_->start(root, bytes, done);
  });
  return {root, bytes, ended->get_future().share()};
}

Status Trainer::endBroadcast(const BroadcastUnderway& underway, std::span<std::byte> data) {
  const base::TrainingThread::Call call(training_.thread, base::Doing::kBroadcast);
  const base::RealClock clock;
  LongWait wait(clock, config_.duration(option::kStallAfter), [this](Duration waited) {
    const base::Whereabouts here{.doing = base::Doing::kBroadcast};
    reportLongWait(base::describe(training_.thread == nullptr ? here : training_.thread->now()),
                   waited);
  });
  const Status ended = base::awaitFuture(fabric_->loop(), underway.ended, [&]() -> Status {
    wait.look();
    return training_.interruption ? training_.interruption() : base::ok();
  });
  if (training_.flight != nullptr) training_.flight->broadcastEnds(underway.root, ended);
  SLUICE_RETURN_IF_ERROR(ended);
  if (underway.root != fabric_->rank() || training_.epochs != nullptr)
    std::ranges::copy(*underway.bytes, data.begin());
  return base::ok();
}

Result<uint64_t> Trainer::broadcastsBegun() {
  uint64_t begun = 0;
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(fabric_->loop(), [&] { begun = broadcast_->begun(); }));
  return begun;
}

void Trainer::endAfter(uint64_t steps, uint64_t broadcasts, const Status& why) {
  // The gates are told at once, so that a thread which already waits wakes up; the strategy
  // hears of it on the loop, behind what was handed over before.
  if (training_.flight != nullptr) training_.flight->peerEnds(why);
  if (const auto first = strategy_->losses().firstStepWithout(steps)) gates_.endAfter(*first, why);
  fabric_->loop().post([this, steps, broadcasts, why] {
    strategy_->endAfter(steps, why);
    broadcast_->endAfter(broadcasts, why);
  });
}

Status Trainer::gradientReady(TensorId tensor) {
  return handOver(tensor, [this, tensor](Step step) {
    strategy_->contribute({tensor, step, /*hasGradient=*/true});
  });
}

Status Trainer::gradientReady(TensorId tensor, const TensorMemory& memory) {
  return handOver(tensor, [this, tensor, memory](Step step) {
    memory_[index(tensor)] = memory;
    strategy_->contribute({tensor, step, /*hasGradient=*/true});
  });
}

Status Trainer::gradientComes(TensorId tensor, const TensorMemory& memory,
                              const ToTarget& toTarget) {
  const TimePoint now = fabric_->loop().now();
  return handOver(tensor, [this, tensor, memory, toTarget, now](Step step) {
    memory_[index(tensor)] = memory;
    coming_.announce(tensor, step, now);
    if (!toTarget || !hasTargetFor(tensor)) return;
    const std::span<std::byte> target = strategy_->stagingTargets().targetFor(tensor);
    memory_[index(tensor)].gradient = target;
    toTarget(target);
  });
}

void Trainer::slicesReady(TensorId tensor, size_t first, size_t count,
                          std::optional<TimePoint> begun) {
  fabric_->loop().post(
      [this, tensor, first, count, begun] { takeSlices(tensor, first, count, begun); });
}

void Trainer::takeSlices(TensorId tensor, size_t first, size_t count,
                         std::optional<TimePoint> begun) {
  // Nothing is begun after a failure; the gradient may not even have been announced.
  if (!gates_.error().isOk()) return coming_.clear();
  for (size_t place = first; place < first + count; ++place) {
    const algorithms::SliceContribution slice = coming_.come(tensor, place);
    const TimePoint announced = coming_.announcedAt(tensor);
    if (observer_ != nullptr) {
      observer_->onStage({Stage::kStageOut, slice.step, tensor, slice.slice, fabric_->rank(),
                          std::max(announced, begun.value_or(announced))});
    }
    strategy_->contributeSlice(slice);
  }
  for (const auto& word : coming_.takeWaiting()) word();
}

Status Trainer::gradientAbsent(TensorId tensor, std::span<std::byte> result,
                               std::shared_ptr<const void> owner) {
  return handOver(tensor, [this, tensor, result, owner = std::move(owner)](Step step) {
    memory_[index(tensor)] = {.gradient = {}, .result = result, .owner = owner};
    strategy_->contribute({tensor, step, /*hasGradient=*/false});
  });
}

Status Trainer::handOver(TensorId tensor, std::function<void(Step)> toStrategy) {
  // The gate is closed by the calling thread, before the loop hears of the gradient. So a
  // second gradient for the same step is an error here and now, and wait() cannot overtake the
  // handover.
  SLUICE_ASSIGN_OR_RETURN(const Step step, gates_.close(tensor));
  if (training_.thread != nullptr) training_.thread->pass();
  const TimePoint now = fabric_->loop().now();
  fabric_->loop().post([this, tensor, step, now, toStrategy = std::move(toStrategy)] {
    // Nothing is begun after a failure: the tensor's last step may not have ended.
    if (!gates_.error().isOk()) return;
    if (observer_ != nullptr) {
      for (const auto& slice : training_.plan.slicesOf(tensor)) {
        observer_->onStage({Stage::kReady, step, tensor, slice.id, fabric_->rank(), now});
      }
    }
    toStrategy(step);
  });
  return base::ok();
}

Status Trainer::setHyperparameters(std::vector<double> values) {
  SLUICE_RETURN_IF_ERROR(checkValues(*training_.update.optimizer, values));
  const Step from{gates_.stepsBegun()};
  fabric_->loop().post([this, values = std::move(values), from] {
    if (const Status status = strategy_->setHyperparameters(values, from); !status.isOk())
      gates_.fail(status);
  });
  return base::ok();
}

Status Trainer::update(std::vector<double> values) {
  SLUICE_RETURN_IF_ERROR(checkValues(*training_.update.optimizer, values));
  const Step step{gates_.stepsBegun() - 1};
  fabric_->loop().post([this, values = std::move(values), step] {
    coming_.whenComplete([this, values, step] {
      Status status = strategy_->setHyperparameters(values, step);
      if (status.isOk()) status = strategy_->decide(algorithms::Decision::kUpdate);
      if (!status.isOk()) gates_.fail(status);
    });
  });
  return base::ok();
}

void Trainer::drop() {
  fabric_->loop().post([this] {
    coming_.whenComplete([this] {
      const Status status = strategy_->decide(algorithms::Decision::kDrop);
      if (!status.isOk()) gates_.fail(status);
    });
  });
}

Result<size_t> Trainer::delayed() {
  size_t delayed = 0;
  SLUICE_RETURN_IF_ERROR(
      fabric::runAndWait(fabric_->loop(), [&] { delayed = strategy_->delayedResults().count(); }));
  return delayed;
}

Status Trainer::handOutDelayed(TensorId tensor, std::span<std::byte> result,
                               std::shared_ptr<const void> owner) {
  return handOver(tensor, [this, tensor, result, owner = std::move(owner)](Step step) {
    memory_[index(tensor)] = {.gradient = {}, .result = result, .owner = owner};
    if (const Status status = strategy_->delayedResults().handOut(tensor, step); !status.isOk())
      gates_.fail(status);
  });
}

Status Trainer::drain() {
  SLUICE_RETURN_IF_ERROR(gates_.waitAll());
  SLUICE_ASSIGN_OR_RETURN(size_t left, delayed());
  for (; left > 0; --left) {
    for (auto t = static_cast<uint32_t>(memory_.size()); t-- > 0;) {
      SLUICE_RETURN_IF_ERROR(handOver(TensorId{t}, [this, t](Step step) {
        const Status status = strategy_->delayedResults().handOut(TensorId{t}, step);
        if (!status.isOk()) gates_.fail(status);
      }));
    }
    SLUICE_RETURN_IF_ERROR(gates_.waitAll());
  }
  return base::ok();
}

// Waits until every gate is open and nothing is on its way.
Status Trainer::settle() {
  SLUICE_RETURN_IF_ERROR(gates_.waitAll());
  return awaitStrategy([this](const algorithms::Done& done) { strategy_->whenIdle(done); },
                       "the reductions did not end");
}

Status Trainer::awaitStrategy(const std::function<void(const algorithms::Done&)>& begin,
                              std::string_view failure) {
  const Duration atMost = config_.duration(option::kWaitTimeout);
  return base::awaitStatus(
      fabric_->loop(),
      [&](auto done) {
        const TimerId timer = fabric_->loop().after(atMost, [this, atMost, failure] {
          const std::string others = describeOthers();
          strategy_->fail({Code::kTimeout, fmt::format("{} within {} (wait-timeout){}{}", failure,
                                                       base::formatDuration(atMost),
                                                       others.empty() ? "" : ": ", others)});
        });
        timers_.push_back(timer);
        begin([this, timer, done = std::move(done)](const Status& status) {
          fabric_->loop().cancel(timer);
          std::erase(timers_, timer);
          done(status);
        });
      },
      training_.interruption);
}

Result<std::vector<std::byte>> Trainer::takeState() {
  const base::TrainingThread::Call call(training_.thread, base::Doing::kCheckpoint);
  SLUICE_RETURN_IF_ERROR(settle());
  SLUICE_RETURN_IF_ERROR(
      awaitStrategy([this](const algorithms::Done& done) { strategy_->checkpoint().prepare(done); },
                    "the servers did not send their state"));
  return strategy_->checkpoint().take();
}

Status Trainer::restore(std::span<const std::byte> state) {
  const base::TrainingThread::Call call(training_.thread, base::Doing::kCheckpoint);
  SLUICE_RETURN_IF_ERROR(settle());
  return strategy_->checkpoint().restore(state);
}

Result<std::set<Rank>> Trainer::ahead() {
  std::set<Rank> ranks;
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(fabric_->loop(), [&] { ranks = strategy_->ahead(); }));
  return ranks;
}

Result<algorithms::Statistics> Trainer::statistics(Duration atMost) {
  algorithms::Statistics statistics;
  SLUICE_RETURN_IF_ERROR(
      fabric::runAndWait(fabric_->loop(), [&] { statistics = strategy_->statistics(); }, atMost));
  return statistics;
}

Result<fabric::Landing> Trainer::onMessage(Rank from, fabric::Lane lane,
                                           const wire::Header& header) {
  const bool isBroadcast = lane == kBroadcastLane;
  // Messages may come as soon as the fabric is there, but the strategy is made after it. Until
  // then they stay at their senders.
  if (isBroadcast ? broadcast_ == nullptr : strategy_ == nullptr)
    return deferred_.defer(from, lane);
  if (training_.flight != nullptr && !isBroadcast) training_.flight->heard(from, header.step);
  auto landing =
      isBroadcast ? broadcast_->onMessage(from, header) : strategy_->onMessage(from, lane, header);
  if (landing.status().code() == Code::kRefused) refused(from, landing.status());
  return landing;
}

// Its sender would not hear of a message that is only dropped, and both would wait for each other.
// So the sender is lost: it hears of that, and every wait here ends with its name and the reason,
// unless the algorithm goes on without it. A message after an end is only counted.
void Trainer::refused(Rank from, const Status& why) {
  if (isEnding_ || !gates_.error().isOk() || !refused_.insert(from).second) return;
  const std::string text =
      fmt::format("it has sent a message that rank {} refuses: {}", fabric_->rank(), why.message());
  log("session").warn("rank {} is given up: {}", from, text);
  fabric_->giveUp(from, {Code::kRefused, text});
}

void Trainer::onPeerLost(Rank from, const Status& why) {
  if (training_.flight != nullptr) training_.flight->peerLost(from, why);
  gone_.insert(from);
  if (training_.epochs != nullptr) return training_.epochs->onPeerLost(from, why);
  if (strategy_ != nullptr && strategy_->losses().goesOnWithout(from)) {
    log("session").warn("rank {} goes on without rank {}: {}", fabric_->rank(), from,
                        why.message());
    if (survived_.isOk()) survived_ = why;
    strategy_->losses().forget(from);
  } else {
    gates_.fail(why);
    if (strategy_ != nullptr) strategy_->fail(why);
    if (broadcast_ != nullptr) broadcast_->fail(why);
  }
  leaveIfNotNeeded();
}

void Trainer::onPeerLeft(Rank from) {
  if (training_.flight != nullptr) training_.flight->peerLeft(from);
  gone_.insert(from);
  // If the others go on, a member that has left the job is taken for lost.
  if (isEnding_ || training_.epochs != nullptr) return;
  if (strategy_ == nullptr) {
    return onPeerLost(
        from, {Code::kPeerLost, fmt::format("rank {} has left before training began", from)});
  }
  leaveIfNotNeeded();
  if (strategy_->losses().goesOnWithout(from)) return strategy_->losses().forget(from);
  timers_.push_back(fabric_->loop().after(kAfterGoodbye, [this, from] { expectEndAfter(from); }));
}

void Trainer::onNewRanks() {
  gone_.clear();
  refused_.clear();
  done_.clear();
  deferred_ = {};
}

void Trainer::expectEndAfter(Rank left) {
  const std::string closed = gates_.describeClosed();
  if (closed == "nothing") {  // but for what nobody waits for yet
    return strategy_->fail(
        {Code::kPeerLost,
         fmt::format("rank {} has left the job before its last reduction ended", left)});
  }
  const Status why{Code::kPeerLost,
                   fmt::format("rank {} has left the job; waiting for {}", left, closed)};
  if (training_.flight != nullptr) training_.flight->failed(why);
  gates_.fail(why);
  strategy_->fail(why);
}

void Trainer::fail(const Status& why) {
  if (training_.flight != nullptr) training_.flight->failed(why);
  gates_.fail(why);
  fabric_->loop().post([this, why] {
    broadcast_->fail(why);
    strategy_->fail(why);
    leaveIfNotNeeded();
  });
}

void Trainer::reportStall(TensorId tensor, Step step, Duration waited) {
  fabric_->loop().post([this, tensor, step, waited] {
    const std::string others = describeOthers();
    log("session").warn(
        "rank {} has waited {:.0f} s for '{}' of step {}: {}{}{}{}; it waits for up to {} "
        "(wait-timeout)",
        fabric_->rank(), base::seconds(waited), training_.plan.model()[tensor].name, step,
        describeWait(tensor), describeBusy(), others.empty() ? "" : "; ", others,
        base::formatDuration(config_.duration(option::kWaitTimeout)));
    if (training_.flight != nullptr) training_.flight->stalled(tensor, step, describeWait(tensor));
  });
}

void Trainer::reportLongWait(std::string_view place, Duration waited) const {
  const std::string others = describeOthers();
  log("session").warn("rank {} has been {} for {}{}{}", fabric_->rank(), place,
                      base::describeSince(waited), others.empty() ? "" : ": ", others);
}

std::string Trainer::describeOthers() const {
  return describeOtherRanks(training_.pulse, fabric_->rank(), fabric_->worldSize(),
                            std::chrono::steady_clock::now());
}

std::string Trainer::describeWait(TensorId tensor) const {
  const std::string copies = coming_.describe(tensor);
  std::string others = strategy_->describeWait(tensor);
  if (training_.epochs != nullptr) {
    if (const std::string change = training_.epochs->describeWait(); !change.empty())
      others = fmt::format("{}; {}", others, change);
  }
  return copies.empty() ? others : fmt::format("{}; {}", copies, others);
}

std::string Trainer::describeBusy() const {
  std::string text;
  for (uint32_t r = 0; training_.pulse != nullptr && r < fabric_->worldSize(); ++r) {
    const auto word = training_.pulse->lastWord(Rank{r});
    if (word && word->busy >= kWorthSaying)
      text += fmt::format("; rank {} has been busy for {:.1f} s", r, base::seconds(word->busy));
  }
  return text;
}

}  // namespace sluice::session
