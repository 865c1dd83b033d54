#include <sluice/algorithms/elastic/elastic_strategy.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/slices.h>
#include <sluice/data/gate/gates.h>

namespace sluice::algorithms {

using fabric::Landing;
using plan::Slice;

namespace {

// The loss of a member ends the inner strategy with one of these. A new epoch follows.
bool comesFromALoss(const Status& status) {
  return status.code() == Code::kPeerLost || status.code() == Code::kCancelled ||
         status.code() == Code::kUnavailable;
}

}  // namespace

Result<std::unique_ptr<ElasticStrategy>> ElasticStrategy::begin(const Context& context, Make make,
                                                                OnBegun onBegun) {
  std::unique_ptr<ElasticStrategy> strategy(
      new ElasticStrategy(context, std::move(make), std::move(onBegun)));
  // Settings count, too, so only a strategy that has been made knows whether it can take over
  // steps.
  SLUICE_RETURN_IF_ERROR(strategy->makeInner());
  if (!strategy->inner_->takeover().isPossible()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("algorithm {} with these settings cannot go on without a lost "
                              "member; leave out --members, or use algorithm=sluice",
                              context.plan.spec().strategy));
  }
  return strategy;
}

ElasticStrategy::ElasticStrategy(const Context& context, Make make, OnBegun onBegun)
    : outer_(context),
      make_(std::move(make)),
      onBegun_(std::move(onBegun)),
      plan_(&context.plan),
      fabric_(&context.fabric),
      kept_(context.plan),
      tensors_(context.plan.model().tensors.size()),
      hasCome_(context.plan.slices().size()),
      innerMemory_(tensors_.size()) {}

ElasticStrategy::~ElasticStrategy() = default;

Context ElasticStrategy::innerContext() {
  return {.plan = *plan_,
          .fabric = *fabric_,
          .gates = *innerGates_,
          .memory = innerMemory_,
          .update = outer_.update,
          .parameters = {},
          .config = outer_.config,
          .observer = outer_.observer,
          .onRefused = outer_.onRefused,
          .results = this,
          .places = this};
}

Status ElasticStrategy::makeInner() {
  // The inner strategy has gates of its own. They open when an epoch has done its part of a
  // step; the outer gate opens when every slice has its result, from whatever epoch.
  innerGates_ = std::make_unique<gate::Gates>(gate::tensorNames(plan_->model()),
                                              gate::WaitOptions{}, [](auto...) {});
  SLUICE_ASSIGN_OR_RETURN(inner_, make_(innerContext()));
  std::vector<Step> steps;
  for (const Slice& slice : plan_->slices()) steps.push_back(Step{kept_.last(slice.id).steps});
  if (onBegun_) onBegun_(steps);
  const Step earliest = *std::ranges::min_element(steps);
  inner_->takeover().startAt(steps);
  // A tensor may have more results than others. Where the algorithm lets tensors start apart,
  // it begins at its own step; otherwise all begin at the earliest, and it passes through the
  // steps that stand (handOn).
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    tensors_[t].nextInside = index(earliest);
    if (!inner_->takeover().startsTogether()) tensors_[t].nextInside = resultsOf(TensorId{t});
    innerGates_->startAt(TensorId{t}, Step{tensors_[t].nextInside});
  }
  return base::ok();
}

uint64_t ElasticStrategy::resultsOf(TensorId tensor) const {
  uint64_t fewest = UINT64_MAX;
  for (const Slice& slice : plan_->slicesOf(tensor))
    fewest = std::min(fewest, kept_.last(slice.id).steps);
  return fewest;
}

void ElasticStrategy::contribute(const Contribution& contribution) {
  OneTensor& here = tensors_[index(contribution.tensor)];
  const auto slices = plan_->slicesOf(contribution.tensor);
  here.step = contribution.step;
  here.hasGradient = contribution.hasGradient;
  here.come = slices.size();
  for (const Slice& slice : slices) hasCome_[index(slice.id)] = true;
  handOn(contribution.tensor);
}

void ElasticStrategy::contributeSlice(const SliceContribution& contribution) {
  OneTensor& here = tensors_[index(contribution.tensor)];
  here.step = contribution.step;
  here.hasGradient = contribution.hasGradient;
  here.come = contribution.come;
  hasCome_[index(contribution.slice)] = true;
  // The inner strategy has begun this step of the tensor and waits for its slices. Otherwise
  // it may not be this tensor's turn yet.
  if (here.isInside && here.nextInside == index(contribution.step)) {
    if (phase_ == Phase::kTraining) giveSliceInside(plan_->slice(contribution.slice));
  } else {
    handOn(contribution.tensor);
  }
}

void ElasticStrategy::handOn(TensorId tensor) {
  const OneTensor& here = tensors_[index(tensor)];
  if (phase_ != Phase::kTraining || here.isInside) return;
  // An algorithm whose tensors all start at the same step is told nothing of those that stand.
  if (here.nextInside < resultsOf(tensor)) return giveInside(tensor, /*hasGradient=*/false);
  if (here.step && index(*here.step) == here.nextInside) giveInside(tensor, here.hasGradient);
}

void ElasticStrategy::giveInside(TensorId tensor, bool hasGradient) {
  OneTensor& here = tensors_[index(tensor)];
  const Step step{here.nextInside};
  const auto closed = innerGates_->close(tensor);
  if (!closed.isOk()) return insideIsOpen(tensor, closed.status());
  here.isInside = true;
  innerMemory_[index(tensor)] = outer_.memory[index(tensor)];
  const auto slices = plan_->slicesOf(tensor);
  // Slices that have their result from an epoch before are not summed again. The inner strategy
  // gets those that lack it.
  here.missing = static_cast<size_t>(
      std::ranges::count_if(slices, [&](const Slice& slice) { return !isDone(slice, step); }));
  here.given = 0;
  // Some results are in their places already. The inner strategy writes its own beside them,
  // and onResult() moves them in.
  if (here.missing < slices.size()) {
    here.aside.resize(plan_->model()[tensor].bytes());
    innerMemory_[index(tensor)].result = here.aside;
  }
  if (here.missing == 0) {
    inner_->contribute({tensor, step, /*hasGradient=*/false});
  } else if (here.missing == slices.size() && isWhole(tensor)) {
    inner_->contribute({tensor, step, hasGradient});
  } else {
    for (const Slice& slice : slices) {
      if (hasCome_[index(slice.id)] && !isDone(slice, step)) giveSliceInside(slice);
    }
  }
  innerGates_->whenOpen(tensor,
                        [this, tensor](const Status& status) { insideIsOpen(tensor, status); });
}

// Contributes one slice, where the tensor cannot go as a whole: other slices have their result
// already, or have not come yet.
void ElasticStrategy::giveSliceInside(const Slice& slice) {
  OneTensor& here = tensors_[index(slice.tensor)];
  inner_->contributeSlice({.tensor = slice.tensor,
                           .slice = slice.id,
                           .step = Step{here.nextInside},
                           .come = ++here.given,
                           .slices = here.missing,
                           .hasGradient = here.hasGradient});
}

void ElasticStrategy::insideIsOpen(TensorId tensor, const Status& status) {
  if (!status.isOk()) {
    // An error that comes from a loss does not end training: the next epoch takes up the step.
    // Any other error is the session's.
    if (phase_ == Phase::kTraining && !comesFromALoss(status)) outer_.gates.fail(status);
    return;
  }
  OneTensor& here = tensors_[index(tensor)];
  here.isInside = false;
  here.aside.clear();
  ++here.nextInside;
  openIfDone(tensor);
  if (here.nextInside >= resultsOf(tensor) && !here.step) return;
  // The next step is handed on in a later task, since the inner strategy is in the middle of
  // opening its gates.
  fabric_->loop().post([this, tensor, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) handOn(tensor);
  });
}

void ElasticStrategy::openIfDone(TensorId tensor) {
  OneTensor& here = tensors_[index(tensor)];
  if (!here.step || here.isInside) return;
  const auto slices = plan_->slicesOf(tensor);
  const auto isHere = [&](const Slice& slice) { return isDone(slice, *here.step); };
  const auto isEmpty = [&](const Slice& slice) { return kept_.last(slice.id).isEmpty; };
  if (!std::ranges::all_of(slices, isHere)) return;
  const Step step = *std::exchange(here.step, std::nullopt);
  here.come = 0;
  for (const Slice& slice : slices) hasCome_[index(slice.id)] = false;
  if (std::ranges::all_of(slices, isEmpty)) {
    outer_.noResultComes(tensor, step);
    return outer_.gates.openEmpty(tensor, step);
  }
  // A slice that only lost members had a gradient for is the mean of no gradients.
  for (const Slice& slice : slices) {
    if (!isEmpty(slice)) continue;
    const auto place = partOf(*plan_, outer_.memory[index(tensor)].result, slice);
    std::memset(place.data(), 0, place.size());
    tellSink(slice, step, fabric_->rank());
  }
  outer_.gates.open(tensor, step);
}

std::span<std::byte> ElasticStrategy::placeFor(const Slice& slice, Step /*step*/) {
  return kept_.landing(slice.id);
}

void ElasticStrategy::onResult(const SliceResult& result) {
  const Slice& slice = plan_->slice(result.slice);
  // A result that stands is never replaced, and the sink hears of each result once.
  if (isDone(slice, result.step)) return;
  if (kept_.isLanding(slice.id)) {
    moveToPlace(slice, kept_.landed(slice.id, plan_->epoch()));
  } else {
    const auto bytes = result.whole.bytes.subspan(result.firstByte, result.bytes);
    kept_.store(slice.id, plan_->epoch(), bytes);
    if (!tensors_[index(slice.tensor)].aside.empty()) moveToPlace(slice, bytes);
  }
  tellSink(slice, result.step, result.from);
}

void ElasticStrategy::onNoResult(TensorId tensor, Step step) {
  for (const Slice& slice : plan_->slicesOf(tensor)) {
    if (!isDone(slice, step)) kept_.storeEmpty(slice.id, plan_->epoch());
  }
}

void ElasticStrategy::moveToPlace(const Slice& slice, std::span<const std::byte> bytes) {
  const auto place = partOf(*plan_, outer_.memory[index(slice.tensor)].result, slice);
  std::memcpy(place.data(), bytes.data(), bytes.size());
}

void ElasticStrategy::tellSink(const Slice& slice, Step step, Rank from) {
  // The context's own fabric may be that of an epoch before.
  const plan::Stages stages(outer_.observer, fabric_->loop().clock());
  if (outer_.results == nullptr) return stages.enter(Stage::kApplied, step, slice, from);
  stages.enter(Stage::kStageIn, step, slice, from);
  const size_t elementBytes = sizeOf(plan_->model()[slice.tensor].dtype);
  outer_.results->onResult({.tensor = slice.tensor,
                            .slice = slice.id,
                            .step = step,
                            .firstByte = slice.offset * elementBytes,
                            .bytes = slice.count * elementBytes,
                            .from = from,
                            .whole = {outer_.memory[index(slice.tensor)].result}});
}

void ElasticStrategy::suspend() {
  if (phase_ == Phase::kTraining) phase_ = Phase::kSuspended;
}

Status ElasticStrategy::setHyperparameters(const std::vector<double>& values, Step from) {
  return inner_ ? inner_->setHyperparameters(values, from) : base::ok();
}

std::string ElasticStrategy::describeWait(TensorId tensor) const {
  switch (phase_) {
    case Phase::kTraining: return inner_->describeWait(tensor);
    case Phase::kSuspended: return "a member is lost, and the others agree on a new epoch";
    case Phase::kExchanging: break;
  }
  return describeExchange();
}

Statistics ElasticStrategy::statistics() const {
  return inner_ ? inner_->statistics() : Statistics{};
}

// The caller asks when every gate is open, and these algorithms delay no result. So between two
// epochs nothing is left to wait for.
void ElasticStrategy::whenIdle(const Done& done) {
  if (phase_ != Phase::kTraining) return done(base::ok());
  inner_->whenIdle(done);
}

std::set<Rank> ElasticStrategy::ahead() const {
  return inner_ ? inner_->ahead() : std::set<Rank>();
}

void ElasticStrategy::fail(const Status& why) {
  if (inner_) inner_->fail(why);
}

void ElasticStrategy::endAfter(uint64_t steps, const Status& why) {
  if (inner_) inner_->endAfter(steps, why);
}

}  // namespace sluice::algorithms
