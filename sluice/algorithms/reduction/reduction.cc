// The engine of reduction.h: from gradients to means, group by group.

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/outbox.h>
#include <sluice/algorithms/reduction/reduction_engine.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/check.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::algorithms {
namespace {

using collective::Ticket;

constexpr size_t kAtOnce = std::numeric_limits<size_t>::max();

}  // namespace

Reduction::Reduction(const Context& context, ReductionSettings settings,
                     std::optional<timing::Costs> costs)
    : Strategy(
          {.checkpoint = this, .delayedResults = this, .stagingTargets = this, .takeover = this}),
      context_(context),
      settings_(std::move(settings)),
      urgent_(settings_.byPriority
                  ? std::make_unique<UrgentFabric>(context.fabric, creditOf(context.config))
                  : nullptr),
      onFabric_(context.collective == nullptr
                    ? std::make_unique<collective::FabricCollective>(
                          urgent_ ? static_cast<fabric::Fabric&>(*urgent_) : context.fabric,
                          [this](const Ticket& ticket) { return willReduce(ticket); })
                    : nullptr),
      collective_(onFabric_ ? static_cast<collective::Collective&>(*onFabric_)
                            : *context.collective),
      groupOf_(context.plan.model().tensors.size()),
      values_(context.update.values) {
  for (const Tensor& tensor : tensors())
    states_.emplace_back(context.update.optimizer->name(), tensor.dtype, tensor.elements);
  makeGroups();
  if (costs) replanner_ = std::make_unique<Replanner>(context_, collective_, *std::move(costs));
}

Reduction::~Reduction() {
  // A reduction that is under way ends by itself with the fabric, but not with somebody else's
  // engine.
  if (onFabric_ == nullptr) collective_.fail({Code::kCancelled, "the training has ended"});
}

void Reduction::contribute(const Contribution& contribution) {
  const TensorId tensor = contribution.tensor;
  if (contribution.hasGradient) {
    groupOf(tensor).put(placeOf(tensor), context_.memory[index(tensor)].gradient);
  } else {
    groupOf(tensor).putNothing(placeOf(tensor));
  }
  close(tensor, contribution.step);
}

bool Reduction::has(TensorId tensor) const {
  const DType own = tensors()[index(tensor)].dtype;
  return Packing::wireTypeOf(own, publishesMean()) == own;
}

std::span<std::byte> Reduction::targetFor(TensorId tensor) {
  SLUICE_DCHECK(context_.fabric.loop().inLoop());
  return groupOf(tensor).targetFor(placeOf(tensor));
}

Status Reduction::handOut(TensorId tensor, Step step) {
  close(tensor, step);
  return base::ok();
}

Result<fabric::Landing> Reduction::onMessage(Rank from, fabric::Lane lane,
                                             const wire::Header& header) {
  if (onFabric_ == nullptr)
    return Status(Code::kRefused,
                  "this rank reduces over a process group and takes no messages of sluice");
  return onFabric_->onMessage(from, lane, header);
}

Status Reduction::setHyperparameters(const std::vector<double>& values, Step from) {
  SLUICE_RETURN_IF_ERROR(checkValues(*context_.update.optimizer, values));
  values_.set(from, values);
  return base::ok();
}

Statistics Reduction::statistics() const {
  if (urgent_) {
    return {.bytesWaiting = urgent_->bytesWaiting(),
            .bytesInFlight = urgent_->egress().credit().inFlight(),
            .inversion = urgent_->egress().inversion()};
  }
  Statistics statistics;
  for (const ReductionGroup& group : groups_) {
    for (const Round& round : group.rounds()) {
      if (round.state == Round::State::kUnderWay)
        statistics.bytesInFlight += round.packing.data().size();
    }
  }
  return statistics;
}

void Reduction::observe(Stage stage, TensorId tensor, Step step) const {
  for (const auto& slice : context_.plan.slicesOf(tensor))
    context_.stages().enter(stage, step, slice, context_.fabric.rank());
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

void Reduction::startAt(std::span<const Step> steps) {
  const Step earliest = *std::ranges::min_element(steps);
  stepsClosed_ = index(earliest);
  nextSteps_.assign(groups_.size(), stepsClosed_);
  if (replanner_) replanner_->startAt(earliest);
}

// True iff another rank can have made this call already, which this rank has not made. Another rank
// needs this one's part of a step to go on, except for the steps of the delay, at the beginning and
// after a drain.
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
  SLUICE_DCHECK(context_.fabric.loop().inLoop());
  stepsClosed_ = std::max(stepsClosed_, index(step) + 1);
  if (replanner_) replanner_->ready(tensor, step);
  const size_t number = groupOf_[index(tensor)];
  if (!groups_[number].close(step)) return;
  reduceWhatMay();
  openIfMay(number);
}

void Reduction::reduceWhatMay() {
  // Groups are reduced in one fixed order on every rank, turn_ counting down as backward does.
  // A group that is complete but not due waits: two ranks that began different reductions first
  // could each wait for the other's for ever.
  while (underWay_ < settings_.atOnce) {
    Round* const round = groups_[turn_].next();
    if (round == nullptr) return;
    const size_t number = turn_;
    turn_ = turn_ == 0 ? groups_.size() - 1 : turn_ - 1;
    reduce(number, *round);
  }
}

void Reduction::reduce(size_t number, Round& round) {
  // Another rank takes part in no step from stepsToCome_ on, so this reduction would never end.
  // The step fails now, with that rank's name, instead of after a timeout.
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
      {.scale = kernel::meanScale(context_.fabric.worldSize()), .codec = settings_.codec},
      [this, number, step = round.step,
       begun = context_.fabric.loop().now()](const Status& status) {
        if (status.isOk()) {
          if (replanner_) replanner_->reduced(number, step, begun);
          return meanIsHere(number, step);
        }
        context_.gates.fail(status);
        fail(status);
      });
}

void Reduction::meanIsHere(size_t number, Step step) {
  groups_[number].arrived(step);
  --underWay_;
  // Gates open before the next reduction begins, since training waits for them; a boundary is
  // looked for last, when nothing else can be begun any more.
  openIfMay(number);
  reduceWhatMay();
  const auto waitsAtBoundary = [this](const ReductionGroup& group) {
    return group.mayOpen() && isAtBoundary(group);
  };
  if (replanner_ && std::ranges::all_of(groups_, waitsAtBoundary)) agreeOnGroups();
  if (isIdle()) tellWhoWaits();
}

// Lets the ranks agree at a boundary. All means are here and all gates closed, so nothing of this
// step or of the next is under way on this rank, neither while they agree nor when the groups
// change.
void Reduction::agreeOnGroups() {
  // Counted as under way, so that nobody takes this rank for idle, and saves or leaves, while
  // the ranks compare their times.
  ++underWay_;
  replanner_->agree([this](const Status& status) {
    if (!status.isOk()) {
      context_.gates.fail(status);
      return fail(status);
    }
    --underWay_;
    // The means lie in the groups' buffers, which a change of groups throws away. So they are
    // used at once, all of them, however long that takes.
    for (size_t g = 0; g < groups_.size(); ++g)
      useMeans(g, 0, kAtOnce);  // before the groups change
    if (replanner_->settings().groups != settings_.groups) changeGroups(replanner_->settings());
    if (isIdle()) tellWhoWaits();
  });
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
      const ResultBytes result = useMean(group, place, *mean);
      bytes += mean->size();
      for (const auto& slice : context_.plan.slicesOf(tensor))
        context_.resultIsHere(slice, group.step(), context_.fabric.rank(), result);
    } else {
      observe(Stage::kApplied, tensor, group.step());
      context_.noResultComes(tensor, group.step());
    }
  }
  if (place < size) {
    return context_.fabric.loop().post(
        [this, number, place, bytesAtOnce, alive = std::weak_ptr(alive_)] {
          // After an error nobody waits for a result, and its memory may be gone.
          if (!alive.expired() && context_.gates.error().isOk())
            useMeans(number, place, bytesAtOnce);
        });
  }
  for (place = 0; place < size; ++place) {  // only now may the next gradients come
    if (group.meanOf(place)) {
      context_.gates.open(group.tensorAt(place), group.step());
    } else {
      context_.gates.openEmpty(group.tensorAt(place), group.step());
    }
  }
  group.opened();
  opening_[number] = false;
}

// Returns the result of the tensor at `place`. Without memory of its own it is the mean itself,
// which stays as it is until the tensor takes part in the next step: its result has been taken
// then.
ResultBytes Reduction::useMean(const ReductionGroup& group, size_t place,
                               std::span<const std::byte> mean) {
  const TensorId tensor = group.tensorAt(place);
  const auto result = context_.memory[index(tensor)].result;
  if (!publishesMean()) {
    const Status applied = applyStep(*context_.update.optimizer, states_[index(tensor)], result,
                                     mean, values_.at(group.step()));
    SLUICE_CHECK(applied.isOk(), applied.toString());  // the values were checked when they were set
    return {result};
  }
  if (result.empty()) return {mean, group.ownerOfMeans()};
  std::memcpy(result.data(), mean.data(), mean.size());
  return {result};
}

bool Reduction::isIdle() const {
  return underWay_ == 0 && std::ranges::none_of(groups_, &ReductionGroup::hasNext);
}

void Reduction::whenIdle(const Done& done) {
  SLUICE_DCHECK(context_.fabric.loop().inLoop());
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
  // A round that is already under way for such a step cannot end either, since the other rank
  // will not join. One whose mean is here is not concerned.
  for (const ReductionGroup& group : groups_) {
    for (const Round& round : group.rounds()) {
      if (round.state != Round::State::kHere && index(round.step) >= steps) return fail(why);
    }
  }
}

std::string Reduction::describeWait(TensorId tensor) const {
  // The answer follows the way of a gradient and names the first thing on it that is missing:
  // gradients of this rank, other ranks in the reduction, the boundary, or the group whose turn
  // it is.
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

}  // namespace sluice::algorithms
