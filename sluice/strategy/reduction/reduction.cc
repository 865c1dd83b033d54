#include <sluice/strategy/reduction/reduction.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/collective/fabric_collective.h>
#include <sluice/kernel/reduce.h>
#include <sluice/strategy/pieces.h>
#include <sluice/strategy/reduction/layer_times.h>
#include <sluice/strategy/reduction/reduction_group.h>
#include <sluice/strategy/reduction/replanner.h>
#include <sluice/strategy/reduction/urgent_fabric.h>
#include <sluice/strategy/values_by_step.h>

namespace sluice::strategy {
namespace {

using collective::Ticket;

constexpr size_t kAtOnce = std::numeric_limits<size_t>::max();

class Reduction final : public Strategy {
 public:
  // With `costs` that the groups were merged by, they may change as the costs do.
  Reduction(const Rooms& rooms, ReductionSettings settings, std::optional<timing::Costs> costs);
  ~Reduction() override {
    // What is under way ends by itself with the fabric, but not with somebody else's engine.
    if (onFabric_ == nullptr) collective_.fail({Code::kCancelled, "the training has ended"});
  }

  void gradientReady(TensorId tensor, Step step) override {
    groupOf(tensor).put(placeOf(tensor), rooms_.memory[index(tensor)].gradient);
    close(tensor, step);
  }
  void gradientAbsent(TensorId tensor, Step step) override {
    groupOf(tensor).putNothing(placeOf(tensor));
    close(tensor, step);
  }
  size_t delayed() const override { return groups_.front().rounds().size(); }
  Status handOutDelayed(TensorId tensor, Step step) override {
    close(tensor, step);
    return base::ok();
  }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    if (onFabric_ == nullptr)
      return Status(Code::kRefused, "this rank reduces over a process group");
    return onFabric_->onMessage(from, lane, header);
  }
  Status setHyperparameters(const std::vector<double>& values, Step from) override {
    SLUICE_RETURN_IF_ERROR(checkValues(*rooms_.update.optimizer, values));
    values_.set(from, values);
    return base::ok();
  }
  void whenIdle(const Done& done) override;
  void fail(const Status& why) override;
  void endAfter(uint64_t steps, const Status& why) override;
  Result<std::vector<std::byte>> takeState() override;
  Status restore(std::span<const std::byte> bytes) override;

  std::string describeWait(TensorId tensor) const override;
  Statistics statistics() const override {
    Statistics statistics;
    if (urgent_) {
      return {.bytesWaiting = urgent_->bytesWaiting(),
              .bytesInFlight = urgent_->egress().credit().inFlight(),
              .inversion = urgent_->egress().inversion()};
    }
    for (const ReductionGroup& group : groups_) {
      for (const Round& round : group.rounds()) {
        if (round.state == Round::State::kUnderWay)
          statistics.bytesInFlight += round.packing.data().size();
      }
    }
    return statistics;
  }

 private:
  void close(TensorId tensor, Step step);
  bool willReduce(const Ticket& ticket) const;
  void reduceWhatMay();
  void reduce(size_t number, Round& round);
  void meanIsHere(size_t number, Step step);
  void openIfMay(size_t number);
  void useMeans(size_t number, size_t place, size_t bytesAtOnce);
  void useMean(TensorId tensor, std::span<const std::byte> mean, Step step);
  void makeGroups();
  void agreeOnGroups();
  void changeGroups(const ReductionSettings& settings);
  ReductionState remember() const;
  void putBack(size_t number, const ReductionState& state,
               std::span<const TensorState* const> saved, bool isOurs);
  bool isIdle() const;
  void tellWhoWaits();
  Status checkState(const ReductionState& state, std::span<const TensorState* const> saved) const;

  bool publishesMean() const {
    return rooms_.update.optimizer->publishes() == optimizer::Publishes::kMeanGradient;
  }
  ReductionGroup& groupOf(TensorId tensor) { return groups_[groupOf_[index(tensor)]]; }
  const ReductionGroup& groupOf(TensorId tensor) const { return groups_[groupOf_[index(tensor)]]; }
  size_t placeOf(TensorId tensor) const { return groupOf(tensor).placeOf(tensor); }
  std::span<const Tensor> tensors() const { return rooms_.plan.model().tensors; }
  bool isAtBoundary(const ReductionGroup& group) const {
    return replanner_ && group.step() == replanner_->boundary();
  }
  void observe(Stage stage, TensorId tensor, Step step) const {
    if (rooms_.observer == nullptr) return;
    for (const auto& slice : rooms_.plan.slicesOf(tensor))
      rooms_.observer->onStage(
          {stage, step, tensor, slice.id, rooms_.fabric.rank(), rooms_.fabric.loop().now()});
  }

  const Rooms rooms_;
  ReductionSettings settings_;
  const std::unique_ptr<UrgentFabric> urgent_;  // null: messages go as they come
  const std::unique_ptr<collective::FabricCollective>
      onFabric_;  // null: somebody else's engine is used
  collective::Collective& collective_;
  std::vector<ReductionGroup> groups_;  // as in the settings
  std::vector<bool> opening_;           // by group: its means are being used, piece by piece
  std::vector<size_t> groupOf_;         // by TensorId
  std::vector<optimizer::OptimizerState> states_;  // by TensorId
  ValuesByStep values_;
  std::unique_ptr<Replanner> replanner_;  // null: the groups stay as they are
  size_t turn_ = 0;                       // the group that is reduced next
  uint64_t stepsClosed_ = 0;              // steps of which a gate was closed
  std::vector<uint64_t> nextSteps_;       // by group: the first step that can still be reduced
  size_t underWay_ = 0;
  std::vector<Done> whenIdle_;
  Status error_;
  uint64_t stepsToCome_ = std::numeric_limits<uint64_t>::max();
  Status end_;                                                    // why there are no more
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for what is posted
};

Reduction::Reduction(const Rooms& rooms, ReductionSettings settings,
                     std::optional<timing::Costs> costs)
    : rooms_(rooms),
      settings_(std::move(settings)),
      urgent_(settings_.byPriority ? std::make_unique<UrgentFabric>(
                                         rooms.fabric, rooms.config.bytes(option::kCredit))
                                   : nullptr),
      onFabric_(rooms.collective == nullptr
                    ? std::make_unique<collective::FabricCollective>(
                          urgent_ ? static_cast<fabric::Fabric&>(*urgent_) : rooms.fabric,
                          [this](const Ticket& ticket) { return willReduce(ticket); })
                    : nullptr),
      collective_(onFabric_ ? static_cast<collective::Collective&>(*onFabric_) : *rooms.collective),
      groupOf_(rooms.plan.model().tensors.size()),
      values_(rooms.update.values) {
  for (const Tensor& tensor : tensors())
    states_.emplace_back(rooms.update.optimizer->name(), tensor.dtype, tensor.elements);
  makeGroups();
  if (costs) replanner_ = std::make_unique<Replanner>(rooms_, collective_, *std::move(costs));
}

void Reduction::makeGroups() {
  groups_.clear();
  groups_.reserve(settings_.groups.size());
  for (const auto& [first, last] : settings_.groups) {
    std::fill(groupOf_.begin() + static_cast<ptrdiff_t>(first),
              groupOf_.begin() + static_cast<ptrdiff_t>(last) + 1, groups_.size());
    groups_.emplace_back(tensors().subspan(first, last - first + 1), first, publishesMean(),
                         settings_);
  }
  opening_.assign(groups_.size(), false);
  turn_ = groups_.size() - 1;
  nextSteps_.assign(groups_.size(), stepsClosed_);
}

// Of a call that this rank has not made: whether another rank can have made it already. Another
// rank needs this one's part of a step to go on, but for the steps of the delay, at the beginning
// and after a drain.
bool Reduction::willReduce(const Ticket& ticket) const {
  const uint64_t step = index(ticket.step);
  const size_t number = index(ticket.number);
  if (step > stepsClosed_ + 2 * settings_.delay) return false;
  if (number < groups_.size() && step >= nextSteps_[number]) return true;
  if (!replanner_) return false;
  if (replanner_->isOwn(ticket)) return true;
  return number < tensors().size() &&
         step > index(replanner_->boundary());  // the groups may change
}

void Reduction::close(TensorId tensor, Step step) {
  SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
  stepsClosed_ = std::max(stepsClosed_, index(step) + 1);
  if (replanner_) replanner_->ready(tensor, step);
  const size_t number = groupOf_[index(tensor)];
  if (!groups_[number].close(step)) return;
  reduceWhatMay();
  openIfMay(number);
}

void Reduction::reduceWhatMay() {
  while (underWay_ < settings_.atOnce) {
    Round* const round = groups_[turn_].next();
    if (round == nullptr) return;
    const size_t number = turn_;
    turn_ = turn_ == 0 ? groups_.size() - 1 : turn_ - 1;
    reduce(number, *round);
  }
}

void Reduction::reduce(size_t number, Round& round) {
  if (index(round.step) >= stepsToCome_) fail(end_);
  round.state = Round::State::kUnderWay;
  nextSteps_[number] = index(round.step) + 1;
  ++underWay_;
  for (size_t place = 0; place < groups_[number].tensors().size(); ++place)
    observe(Stage::kPush, groups_[number].tensorAt(place), round.step);
  collective_.allReduce(
      {.ticket = Ticket{round.step, TensorId{static_cast<uint32_t>(number)}},
       .method = settings_.methods[number],
       .dtype = round.packing.dtype(),
       .data = round.packing.data()},
      {.scale = kernel::meanScale(rooms_.fabric.worldSize()), .codec = settings_.codec},
      [this, number, step = round.step, begun = rooms_.fabric.loop().now()](const Status& status) {
        if (status.isOk()) {
          if (replanner_) replanner_->reduced(number, step, begun);
          return meanIsHere(number, step);
        }
        rooms_.gates.fail(status);
        fail(status);
      });
}

void Reduction::meanIsHere(size_t number, Step step) {
  groups_[number].arrived(step);
  --underWay_;
  openIfMay(number);
  reduceWhatMay();
  const auto waitsAtBoundary = [this](const ReductionGroup& group) {
    return group.mayOpen() && isAtBoundary(group);
  };
  if (replanner_ && std::ranges::all_of(groups_, waitsAtBoundary)) agreeOnGroups();
  if (isIdle()) tellWhoWaits();
}

// At a boundary. All means are here and all gates closed, so nothing of this step or of the next is
// under way on this rank while the ranks agree, nor when the groups change.
void Reduction::agreeOnGroups() {
  ++underWay_;
  replanner_->agree([this](const Status& status) {
    if (!status.isOk()) {
      rooms_.gates.fail(status);
      return fail(status);
    }
    --underWay_;
    for (size_t g = 0; g < groups_.size(); ++g)
      useMeans(g, 0, kAtOnce);  // before the groups change
    if (replanner_->settings().groups != settings_.groups) changeGroups(replanner_->settings());
    if (isIdle()) tellWhoWaits();
  });
}

void Reduction::changeGroups(const ReductionSettings& settings) {
  const ReductionState state = remember();
  settings_ = settings;
  makeGroups();
  std::vector<const TensorState*> saved;
  for (const TensorState& tensor : state.tensors) saved.push_back(&tensor);
  for (size_t g = 0; g < groups_.size(); ++g) putBack(g, state, saved, /*isOurs=*/true);
}

void Reduction::openIfMay(size_t number) {
  const ReductionGroup& group = groups_[number];
  if (!group.mayOpen() || isAtBoundary(group) || opening_[number]) return;
  opening_[number] = true;
  useMeans(number, 0, kPieceBytes);
}

// Uses the group's means from tensor `place` on, and opens its gates after the last. A group may be
// as large as the model, so this is done in pieces. In between the group is as it was: its gates
// are closed, so no gradient of the next step comes to it, and its oldest round stays the oldest
// until opened().
void Reduction::useMeans(size_t number, size_t place, size_t bytesAtOnce) {
  ReductionGroup& group = groups_[number];
  const size_t size = group.tensors().size();
  for (size_t bytes = 0; place < size && bytes < bytesAtOnce; ++place) {
    const TensorId tensor = group.tensorAt(place);
    if (const auto mean = group.meanOf(place)) {
      useMean(tensor, *mean, group.step());
      bytes += mean->size();
    }
    observe(Stage::kApplied, tensor, group.step());
  }
  if (place < size) {
    return rooms_.fabric.loop().post(
        [this, number, place, bytesAtOnce, alive = std::weak_ptr(alive_)] {
          // After an error nobody waits for a result, and its memory may be gone.
          if (!alive.expired() && rooms_.gates.error().isOk()) useMeans(number, place, bytesAtOnce);
        });
  }
  for (place = 0; place < size; ++place) {  // only now may the next gradients come
    if (group.meanOf(place)) {
      rooms_.gates.open(group.tensorAt(place), group.step());
    } else {
      rooms_.gates.openEmpty(group.tensorAt(place), group.step());
    }
  }
  group.opened();
  opening_[number] = false;
}

void Reduction::useMean(TensorId tensor, std::span<const std::byte> mean, Step step) {
  const auto result = rooms_.memory[index(tensor)].result;
  if (publishesMean()) {
    std::memcpy(result.data(), mean.data(), mean.size());
    return;
  }
  const Status applied =
      applyStep(*rooms_.update.optimizer, states_[index(tensor)], result, mean, values_.at(step));
  SLUICE_CHECK(applied.isOk(), applied.toString());  // the values were checked when they were set
}

bool Reduction::isIdle() const {
  return underWay_ == 0 && std::ranges::none_of(groups_, &ReductionGroup::hasNext);
}

void Reduction::whenIdle(const Done& done) {
  SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
  whenIdle_.push_back(done);
  if (isIdle() || !error_.isOk()) tellWhoWaits();
}

void Reduction::tellWhoWaits() {
  const Status status = isIdle() ? base::ok() : error_;
  for (const Done& done : std::exchange(whenIdle_, {})) done(status);
}

void Reduction::fail(const Status& why) {
  if (!error_.isOk()) return;
  error_ = why;
  collective_.fail(why);
  tellWhoWaits();
}

void Reduction::endAfter(uint64_t steps, const Status& why) {
  if (!end_.isOk()) return;
  stepsToCome_ = steps;
  end_ = why;
  for (const ReductionGroup& group : groups_) {
    for (const Round& round : group.rounds()) {
      if (round.state != Round::State::kHere && index(round.step) >= steps) return fail(why);
    }
  }
}

Result<std::vector<std::byte>> Reduction::takeState() {
  if (settings_.delay == 0 && settings_.codec == nullptr && publishesMean())
    return std::vector<std::byte>();
  if (!std::ranges::all_of(groups_, &ReductionGroup::isAtRest))
    return Status(Code::kInvalidArgument, "a state can be saved between two steps only");
  ReductionState state = remember();
  for (uint32_t t = 0; t < tensors().size() && !publishesMean(); ++t)
    state.tensors[t].optimizer = states_[t].toBytes();
  return state.toBytes();
}

// What the groups hold, by TensorId. REQUIRES: all are at rest
ReductionState Reduction::remember() const {
  ReductionState state{.rank = index(rooms_.fabric.rank()),
                       .steps = groups_.front().steps(),
                       .rounds = static_cast<uint32_t>(delayed())};
  for (uint32_t t = 0; t < tensors().size(); ++t)
    state.tensors.push_back(groupOf(TensorId{t}).save(placeOf(TensorId{t})));
  return state;
}

// `saved` by TensorId; null: nothing was.
void Reduction::putBack(size_t number, const ReductionState& state,
                        std::span<const TensorState* const> saved, bool isOurs) {
  const auto& [first, last] = settings_.groups[number];
  groups_[number].restore(saved.subspan(first, last - first + 1), state, isOurs);
}

// `saved` has what the state says of the tensors here, by TensorId; null: nothing.
Status Reduction::checkState(const ReductionState& state,
                             std::span<const TensorState* const> saved) const {
  if (state.rounds > settings_.delay || (state.rounds > 0 && state.steps < settings_.warmUp)) {
    return {
        Code::kInvalidArgument,
        "it holds delayed gradients; use --algorithm pipe as when it was saved, or drain before"};
  }
  for (const TensorState& tensor : state.tensors) {
    if (std::ranges::find(saved, &tensor) == saved.end())
      return {Code::kInvalidArgument, fmt::format("no tensor '{}' is trained here", tensor.name)};
  }
  for (uint32_t t = 0; t < saved.size(); ++t) {
    if (saved[t] == nullptr) continue;
    SLUICE_RETURN_IF_ERROR(groupOf(TensorId{t}).check(placeOf(TensorId{t}), *saved[t]));
    if (saved[t]->optimizer.empty()) continue;
    SLUICE_ASSIGN_OR_RETURN(const auto optimizer,
                            optimizer::OptimizerState::fromBytes(saved[t]->optimizer));
    if (optimizer.optimizer() != states_[t].optimizer() ||
        optimizer.dtype() != states_[t].dtype() || optimizer.elements() != states_[t].elements()) {
      return {Code::kInvalidArgument, fmt::format("'{}' was trained by {}, or had another size",
                                                  saved[t]->name, optimizer.optimizer())};
    }
  }
  return base::ok();
}

Status Reduction::restore(std::span<const std::byte> bytes) {
  if (!std::ranges::all_of(groups_, &ReductionGroup::isAtRest))
    return {Code::kInvalidArgument, "a state can be put back between two steps only"};
  ReductionState state;
  if (!bytes.empty()) {
    SLUICE_ASSIGN_OR_RETURN(state, ReductionState::fromBytes(bytes));
  }
  std::map<std::string_view, const TensorState*> byName;
  for (const TensorState& tensor : state.tensors) byName[tensor.name] = &tensor;
  std::vector<const TensorState*> saved;
  for (const Tensor& tensor : tensors()) {
    const auto found = byName.find(tensor.name);
    saved.push_back(found == byName.end() ? nullptr : found->second);
  }
  if (const Status fits = checkState(state, saved); !fits.isOk())
    return fits.withContext("the saved state does not fit");

  const bool isOurs = state.rank == index(rooms_.fabric.rank());
  if (settings_.codec != nullptr && !isOurs && !bytes.empty()) {
    log("strategy")
        .warn(
            "rank {} goes on from rank {}'s checkpoint: what {} owed here is lost; save on every "
            "rank",
            rooms_.fabric.rank(), state.rank, settings_.codec->name());
  }
  // On the loop, which tells others how many bytes the groups have under way.
  SLUICE_RETURN_IF_ERROR(inPieces(rooms_.fabric.loop(), groups_.size(), [&](size_t g) {
    putBack(g, state, saved, isOurs);
    return kPieceBytes;
  }));
  for (uint32_t t = 0; t < saved.size(); ++t) {
    if (saved[t] == nullptr || saved[t]->optimizer.empty()) {
      states_[t] = {states_[t].optimizer(), states_[t].dtype(), states_[t].elements()};
    } else {
      states_[t] =
          optimizer::OptimizerState::fromBytes(saved[t]->optimizer).value();  // checked above
    }
  }
  return base::ok();
}

std::string Reduction::describeWait(TensorId tensor) const {
  const size_t number = groupOf_[index(tensor)];
  const ReductionGroup& group = groups_[number];
  if (!group.isDue())
    return fmt::format("{} gradients of its group are not here yet", group.missing());
  const Round& round = group.rounds().front();  // else it would not wait
  if (round.state == Round::State::kUnderWay)
    return collective_.describeWait({round.step, TensorId{static_cast<uint32_t>(number)}});
  if (round.state ==
      Round::State::kHere) {  // a boundary: for the other groups, and then for the ranks
    const auto late = std::ranges::find_if_not(groups_, &ReductionGroup::mayOpen);
    return late == groups_.end() ? replanner_->describeWait() : describeWait(late->tensorAt(0));
  }
  const ReductionGroup& before = groups_[turn_];
  if (!before.hasNext())
    return fmt::format("group {} goes first, and lacks {} gradients of this rank", turn_,
                       before.missing());
  return fmt::format("{} other reductions are under way", underWay_);
}

}  // namespace

Status chooseReduction(const base::Config& config, std::span<const timing::Group> groups,
                       plan::PlanSpec& spec) {
  if (spec.roles.workers.size() != spec.roles.world)
    return {Code::kInvalidArgument,
            fmt::format("{} has no servers: leave out --servers dedicated", spec.strategy)};
  for (const auto& tensor : spec.model.tensors) {
    if (config.text(option::kCodec) != "none" && tensor.dtype != DType::kF32)
      return {
          Code::kInvalidArgument,
          fmt::format("tensor {} is not f32, which is all that codecs take", tensor.toString())};
  }
  if (config.integer(option::kReductions) < 1)
    return {Code::kInvalidArgument, "--reductions must be at least 1, or nothing is ever reduced"};
  spec.slicing.placement = plan::Placement::kKvstore;  // whole tensors; slices are only names here
  SLUICE_RETURN_IF_ERROR(setGroups(config, splitByType(spec.model, groups), spec));
  spec.settings["codec"] = config.text(option::kCodec);
  spec.settings["reductions"] = std::to_string(config.integer(option::kReductions));
  return settingsOf(spec).status();
}

Result<std::unique_ptr<Strategy>> makeReduction(const Rooms& rooms) {
  if (rooms.updatesWaitForWord) {
    return Status(Code::kInvalidArgument,
                  "this algorithm has no servers whose updates could wait; use algorithm=sluice");
  }
  for (const auto& tensor : rooms.plan.model().tensors)
    SLUICE_RETURN_IF_ERROR(kernel::checkArithmetic(tensor.dtype));
  SLUICE_ASSIGN_OR_RETURN(auto settings, settingsOf(rooms.plan.spec()));
  if (settings.byPriority && rooms.collective != nullptr) {
    return Status(
        Code::kInvalidArgument,
        "a process group knows no priorities; use algorithm=mgwfbp with it, or leave it out");
  }
  std::optional<timing::Costs> costs;
  if (settings.replanSteps > 0 && rooms.fabric.worldSize() > 1) {
    SLUICE_ASSIGN_OR_RETURN(costs,
                            reductionCosts(rooms.config, rooms.plan.model(), rooms.plan.roles()));
  }
  return std::unique_ptr<Strategy>(
      std::make_unique<Reduction>(rooms, std::move(settings), std::move(costs)));
}

}  // namespace sluice::strategy
