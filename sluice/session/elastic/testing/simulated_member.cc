#include <sluice/session/elastic/testing/simulated_member.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/testing/elastic_world.h>
#include <sluice/base/byte_io.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/session/elastic/testing/simulated_job.h>

namespace sluice::session {
namespace {

using namespace std::chrono_literals;
using membership::EpochView;
using membership::GatherRounds;

constexpr Duration kPatienceWithStore = 15s;  // as join_members.cc
constexpr Duration kLastWords = 5s;           // as job_parts.cc
constexpr Duration kWaitTimeout = 10min;      // as the option
constexpr Duration kShortestStep = 2ms;
constexpr Duration kLongestStep = 60ms;
constexpr Duration kBetweenTensors = 1ms;
constexpr uint64_t kRoundEvery = 4;  // steps
constexpr size_t kBufferBytes = 16;

}  // namespace

SimulatedMember::SimulatedMember(SimulatedJob& job, uint32_t number)
    : job_(job),
      number_(number),
      loop_(job.time()),
      port_(job.network().openPort(number)),
      gates_(gate::tensorNames(job.plan().model()), gate::WaitOptions{}, [](auto...) {}) {
  for (const Tensor& tensor : job.plan().model().tensors) memories_.emplace_back(tensor.elements);
  memory_.resize(memories_.size());
  auto store = membership::makeMemoryMembership(loop_, job.table(), job.storeOptions());
  membership_ = std::move(store.membership);
  way_ = store.way;
}

SimulatedMember::~SimulatedMember() {
  isKilled_ = true;
  loop_.end();
  loop_.runNow([this] { freeAll(); });
}

void SimulatedMember::freeAll() {
  if (epochs_) epochs_->stop();
  if (channel_) channel_->remove(*this);
  // In the order of ~Trainer: the last completions of the fabric find the strategy alive.
  fabric_.reset();
  elastic_ = nullptr;
  strategy_.reset();
  epochs_.reset();
  channel_.reset();
  membership_.reset();
  way_ = nullptr;
}

void SimulatedMember::setPhase(LifePhase phase) {
  phase_ = phase;
  job_.reached(number_, phase);
}

void SimulatedMember::kill(bool withItsHost) {
  isKilled_ = true;
  loop_.end();
  job_.network().lose(number_, withItsHost);
}

void SimulatedMember::setStoreAway(const std::string& why) {
  if (way_ != nullptr) way_->setUnavailable(why);
}

// ---- Joining ----

void SimulatedMember::writeFirst(membership::EpochRecord first) {
  loop_.post([this, first = std::move(first)] {
    membership_->begin(first, kPatienceWithStore,
                       [this, first](const auto& got) { onFirstWritten(first, got); });
  });
}

void SimulatedMember::onFirstWritten(const membership::EpochRecord& first,
                                     const Result<membership::StoredEpoch>& got) {
  if (isKilled_) return;
  if (!got.isOk()) return endWith(got.status());
  if (got->record.nonce == first.nonce) {
    firstRead_ = *got;
    job_.hasRead(number_);
    return job_.firstEpochIsWritten(first.number);
  }
  // The epoch of an earlier job of the same name, which is followed.
  membership::EpochRecord next = first;
  next.number = Epoch{index(got->record.number) + 1};
  membership_->replace(*got, next, kPatienceWithStore,
                       [this, next](const auto& answer) { onFirstWritten(next, answer); });
}

void SimulatedMember::readFirst(const membership::Nonce& nonce) {
  loop_.post([this, nonce] {
    membership_->latest(kPatienceWithStore,
                        [this, nonce](const Result<membership::StoredEpoch>& got) {
                          if (isKilled_) return;
                          if (!got.isOk()) return endWith(got.status());
                          if (got->record.nonce != nonce)
                            return endWith({Code::kRefused, "another job has begun"});
                          firstRead_ = *got;
                          job_.hasRead(number_);
                        });
  });
}

void SimulatedMember::start() {
  loop_.post([this] { startChannel(*firstRead_); });
}

Result<std::unique_ptr<fabric::WatchedFabric>> SimulatedMember::makeFabric(
    std::vector<uint32_t> ports, Rank rank, Epoch epoch, fabric::Receiver& receiver) {
  return fabric::WatchedFabric::make(
      loop_, fabric::LivenessOptions{}, receiver,
      [&](fabric::Receiver& watchman) -> Result<std::unique_ptr<fabric::NodeFabric>> {
        return job_.network().join(std::move(ports), rank, epoch, loop_, watchman);
      });
}

void SimulatedMember::startChannel(const membership::StoredEpoch& first) {
  membership_->announce(first.record.members[number_], kPatienceWithStore, [](const Status&) {});
  std::vector<uint32_t> ports;
  for (const membership::Member& member : first.record.members)
    ports.push_back(SimulatedJob::portIn(member.address));
  auto made = membership::MemberChannel::start(
      loop_, std::move(membership_), first, Rank{number_}, job_.proposerOptions(),
      [&](fabric::Receiver& receiver) -> Result<std::unique_ptr<fabric::Fabric>> {
        SLUICE_ASSIGN_OR_RETURN(auto fabric, makeFabric(ports, Rank{number_}, Epoch{0}, receiver));
        return std::unique_ptr<fabric::Fabric>(std::move(fabric));
      });
  channel_ = *std::move(made);
  channel_->add(*this);
  setPhase(LifePhase::kOpening);
  channel_->gather(
      "plan/model", 0, [](const EpochView&) { return std::string("plan"); }, kWaitTimeout,
      [this](const Result<GatherRounds::Values>& got) {
        if (isKilled_) return;
        if (!got.isOk()) return endWith(got.status());
        open();
      });
}

// ---- The session ----

Result<EpochPort> SimulatedMember::openPort() {
  const uint32_t port = job_.network().openPort(number_);
  return EpochPort{.address = SimulatedJob::addressOf(port),
                   .connect = [this](const EpochPlace& place, fabric::Receiver& receiver,
                                     fabric::Pulse* /*pulse*/) {
                     std::vector<uint32_t> ports;
                     for (const auto& address : place.addresses)
                       ports.push_back(SimulatedJob::portIn(address));
                     return makeFabric(std::move(ports), place.rank, place.epoch, receiver);
                   }};
}

void SimulatedMember::open() {
  epochs_ = std::make_unique<Epochs>(EpochsJob{.loop = loop_,
                                               .config = job_.config(),
                                               .members = *channel_,
                                               .pulse = nullptr,
                                               .interruption = job_.noInterruption(),
                                               .openPort = [this] { return openPort(); }},
                                     "model", job_.plan());
  channel_->whenNoted("end/model", [this](const std::string&) {
    const uint64_t steps = job_.steps();
    const Status why{Code::kPeerLost, "a rank has ended its training"};
    if (strategy_ == nullptr) return;
    if (const auto first = strategy_->losses().firstStepWithout(steps))
      gates_.endAfter(*first, why);
    strategy_->endAfter(steps, why);
  });
  epochs_->connectLater(*this,
                        {.onEntered =
                             [this] {
                               deferred_ = {};
                               refused_.clear();
                             },
                         .onEnd = [this](const Status& why) { endWith(why); },
                         .nextStep = [this] { return Step{gates_.stepsBegun()}; }},
                        [this](Result<std::unique_ptr<EpochFabric>> fabric) {
                          if (!isKilled_) beginTraining(std::move(fabric));
                        });
}

void SimulatedMember::beginTraining(Result<std::unique_ptr<EpochFabric>> fabric) {
  if (!fabric.isOk()) return endWith(fabric.status());
  fabric_ = *std::move(fabric);
  auto made = epochs_->makeStrategy({.plan = epochs_->plan(),
                                     .fabric = *fabric_,
                                     .gates = gates_,
                                     .memory = memory_,
                                     .update = job_.update(),
                                     .parameters = {},
                                     .config = job_.config(),
                                     .observer = nullptr},
                                    job_.algorithm().make);
  if (!made.isOk()) return endWith(made.status());
  strategy_ = *std::move(made);
  elastic_ = static_cast<algorithms::ElasticStrategy*>(strategy_.get());
  epochs_->begin();
  deferred_.resume(*fabric_);
  setPhase(LifePhase::kTraining);
  beginStep();
}

Result<fabric::Landing> SimulatedMember::onMessage(Rank from, fabric::Lane lane,
                                                   const wire::Header& header) {
  if (strategy_ == nullptr) return deferred_.defer(from, lane);
  auto landing = strategy_->onMessage(from, lane, header);
  if (landing.status().code() == Code::kRefused && refused_.insert(from).second)
    fabric_->giveUp(from, landing.status());
  return landing;
}

void SimulatedMember::onPeerLost(Rank from, const Status& why) {
  if (epochs_) epochs_->onPeerLost(from, why);
}

void SimulatedMember::onEpoch(const EpochView& view) {
  epoch_ = view.epoch;
  job_.sawEpoch(number_, view);
}

// ---- The training program ----

void SimulatedMember::beginStep() {
  handedOver_ = 0;
  taken_ = 0;
  loop_.after(job_.time().between(kShortestStep, kLongestStep), [this] { handOverNext(); });
}

void SimulatedMember::handOverNext() {
  if (end_ || phase_ != LifePhase::kTraining) return;
  const Model& model = job_.plan().model();
  const TensorId tensor{static_cast<uint32_t>(memories_.size() - 1 - handedOver_++)};
  std::vector<float>& place = memories_[index(tensor)];
  const auto gradient = algorithms::gradientOf(Rank{number_}, step_, model[tensor], tensor);
  const bool hasGradient = !gradient.empty();
  if (hasGradient) place = gradient;
  const auto bytes = std::as_writable_bytes(std::span(place));
  const auto step = gates_.close(tensor);
  if (!step.isOk()) return endWith(step.status());
  memory_[index(tensor)] = {.gradient = hasGradient ? bytes : std::span<std::byte>(),
                            .result = bytes};
  strategy_->contribute({tensor, *step, hasGradient});
  if (handedOver_ == memories_.size()) return awaitNext();
  loop_.after(job_.time().upTo(kBetweenTensors), [this] { handOverNext(); });
}

void SimulatedMember::awaitNext() {
  const TensorId tensor{static_cast<uint32_t>(taken_)};
  // The callback may come from the middle of the strategy.
  gates_.whenOpen(tensor, [this, tensor](const Status& status) {
    loop_.post([this, tensor, status] {
      if (end_ || phase_ != LifePhase::kTraining) return;
      if (!status.isOk()) return endWith(status);
      take(tensor);
    });
  });
}

void SimulatedMember::take(TensorId tensor) {
  Seen seen;
  for (const plan::Slice& slice : job_.plan().slicesOf(tensor))
    seen.made.push_back(elastic_->lastResult(slice.id).made);
  seen.isEmpty = gates_.isEmpty(tensor);
  std::vector<float>& place = memories_[index(tensor)];
  if (!seen.isEmpty) seen.values = place;
  job_.checkResult(number_, {step_, tensor}, seen);
  if (!seen_.emplace(Moment(step_, tensor), std::move(seen)).second)
    job_.violated(fmt::format("member {} has made step {} twice", number_, step_));
  std::ranges::fill(place, -7.0F);  // as clipping and zero_grad() do
  job_.time().note({number_, step_, index(tensor)});
  if (++taken_ < memories_.size()) return awaitNext();
  ++step_;
  if (const auto view = epochs_->history().agreedBy(gates_.stepsBegun()))
    agreed_[gates_.stepsBegun()] = view->epoch;
  afterStep();
}

void SimulatedMember::afterStep() {
  if (step_ == job_.steps()) return leave();
  if (step_ % kRoundEvery == 1) return gatherMean();
  if (step_ % kRoundEvery == 3) return broadcastBuffers();
  beginStep();
}

void SimulatedMember::gatherMean() {
  const uint64_t step = step_;
  channel_->gather(
      "mean", 0,
      [this, step](const EpochView&) { return fmt::format("{} of step {}", number_, step); },
      kWaitTimeout,
      [this, step](const Result<GatherRounds::Values>& got) {
        if (isKilled_ || end_) return;
        if (!got.isOk()) return endWith(got.status());
        rounds_[fmt::format("mean of step {}", step)] = *got;
        beginStep();
      });
}

void SimulatedMember::broadcastBuffers() {
  const auto data = std::make_shared<std::vector<std::byte>>(kBufferBytes);
  std::ranges::fill(*data, static_cast<std::byte>(uint64_t{number_} * 16 + step_));
  epochs_->broadcast(Rank{0}, data, [this, data, step = step_](const Status& status) {
    if (isKilled_ || end_) return;
    if (!status.isOk()) return endWith(status);
    rounds_[fmt::format("buffers of step {}", step)] = {base::textOf(*data)};
    beginStep();
  });
}

// ---- Ends ----

// In the order of SessionParts::leave(), Trainer::leave() and ~JobParts, each step where they wait
// for the one before.
void SimulatedMember::leave() {
  setPhase(LifePhase::kLeaving);
  strategy_->whenIdle([this](const Status& idle) {
    if (isKilled_ || end_) return;
    if (!idle.isOk()) return endWith(idle);
    loop_.post([this] {
      if (end_) return;
      channel_->leaveNote("end/model", fmt::format("{} {}", number_, step_));
      channel_->gather(
          "leave/model", 0, [this](const EpochView&) { return std::to_string(number_); },
          kWaitTimeout,
          [this](const Result<GatherRounds::Values>& got) {
            if (isKilled_ || end_) return;
            if (!got.isOk()) return endWith(got.status());
            leaveRound_ = *got;
            history_ = epochs_->history().all(gates_.stepsBegun());
            epochs_->stop();
            channel_->remove(*this);
            fabric_->close([this](const Status&) { loop_.post([this] { leaveChannel(); }); });
          });
    });
  });
}

void SimulatedMember::leaveChannel() {
  if (isKilled_ || end_) return;
  fabric_.reset();
  elastic_ = nullptr;
  strategy_.reset();
  epochs_.reset();
  channel_->leave(kLastWords, [this] {
    if (isKilled_ || end_) return;
    end_ = base::ok();
    loop_.post([this] {
      freeAll();
      setPhase(LifePhase::kOver);
      loop_.end();
      job_.network().lose(number_, /*withItsHost=*/false);
    });
  });
}

// The program ends with an exception: its session says goodbye, as ~Trainer does when another is to
// blame, and its membership does not.
void SimulatedMember::endWith(const Status& why) {
  if (isKilled_ || end_) return;
  end_ = why;
  job_.time().note({number_, static_cast<uint64_t>(why.code())});
  loop_.post([this] {
    if (epochs_) epochs_->stop();
    if (channel_) channel_->remove(*this);
    if (!fabric_ || end_->code() != Code::kPeerLost) return abandon();
    fabric_->close([this](const Status&) { loop_.post([this] { abandon(); }); });
  });
}

void SimulatedMember::abandon() {
  if (isKilled_ || phase_ == LifePhase::kOver) return;
  freeAll();
  setPhase(LifePhase::kOver);
  loop_.end();
  job_.network().lose(number_, /*withItsHost=*/false);
}

std::string SimulatedMember::describe() {
  constexpr std::array kPhases{"joins", "opens", "trains", "leaves", "is over"};
  std::string text = fmt::format("member {} {}", number_, kPhases[static_cast<size_t>(phase_)]);
  if (isKilled_) return text + " and was killed";
  text += fmt::format(" in step {}, epoch {}", step_, index(epoch_));
  if (loop_.isStopped()) text += ", stopped";
  if (end_) return text + fmt::format(", ended: {}", end_->toString());
  if (channel_) text += fmt::format(" ({})", channel_->describeWait());
  if (strategy_ && taken_ < memories_.size())
    text += ": " + strategy_->describeWait(TensorId{static_cast<uint32_t>(taken_)});
  return text;
}

}  // namespace sluice::session
