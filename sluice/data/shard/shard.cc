#include <sluice/data/shard/shard.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::shard {

namespace {
// A worker sets hyperparameters for its next step, and no two of its tensors are further apart than
// this.
constexpr uint64_t kMostStepsAhead = 4;
}  // namespace

Result<std::unique_ptr<Shard>> Shard::make(const plan::Plan& plan, Rank self,
                                           optimizer::OptimizerSpec update, const Clock& clock,
                                           StageObserver* observer) {
  for (const auto& tensor : plan.model().tensors) {
    if (const Status status = kernel::checkArithmetic(tensor.dtype); !status.isOk()) {
      return status.withContext(fmt::format("tensor '{}'", tensor.name));
    }
  }
  return std::unique_ptr<Shard>(new Shard(plan, self, std::move(update), clock, observer));
}

Shard::Shard(const plan::Plan& plan, Rank self, optimizer::OptimizerSpec update, const Clock& clock,
             StageObserver* observer)
    : plan_(plan),
      self_(self),
      stages_(observer, clock),
      meanScale_(kernel::meanScale(plan.roles().workers.size())),
      update_(std::move(update)),
      values_{{Step{0}, update_.values}},
      served_(plan.slices().size()) {
  const auto& workers = plan.roles().workers;
  size_t largest = 0;
  for (const SliceId id : plan.slicesOn(self)) {
    const plan::Slice& slice = plan.slice(id);
    const DType dtype = plan.model()[slice.tensor].dtype;
    auto fresh =
        std::make_unique<Served>(Served{.states = {},
                                        .parts = {},
                                        .buffers = {},
                                        .home = {},
                                        .state = {update_.optimizer->name(), dtype, slice.count}});
    fresh->states.resize(workers.size());
    fresh->parts.resize(workers.size());
    fresh->buffers.resize(workers.size());
    fresh->home.resize(plan.bytesOf(slice));
    for (size_t w = 0; w < workers.size(); ++w) {
      // The buffers are written to here, so that the first step does not pay for the page faults.
      if (workers[w] != self)
        fresh->buffers[w] = std::make_unique<std::byte[]>(plan.bytesOf(slice));
    }
    largest = std::max(largest, slice.count * sizeOf(kernel::accumulatorOf(dtype)));
    served_[index(id)] = std::move(fresh);
  }
  accumulator_.resize(largest);
}

void Shard::setParameters(SliceId slice, std::span<const std::byte> parameters) {
  std::vector<std::byte>& home = served(slice).home;
  SLUICE_CHECK(parameters.size() == home.size(), parameters.size(), home.size());
  std::ranges::copy(parameters, home.begin());
}

Status Shard::setHyperparameters(std::vector<double> values, Step from) {
  SLUICE_RETURN_IF_ERROR(optimizer::checkValues(*update_.optimizer, values));
  // No slice goes back a step, so values that only earlier steps used can go.
  Step earliest = from;
  for (const auto& each : served_) {
    if (each == nullptr) continue;
    if (from < each->step || index(from) - index(each->step) > kMostStepsAhead) {
      return {Code::kRefused,
              fmt::format("hyperparameters came for step {} while step {} is collected", from,
                          each->step)};
    }
    earliest = std::min(earliest, each->step);
  }
  // The values in force at the earliest step that is still being collected stay, even if they
  // were set long ago; only those before them go.
  const auto after = values_.upper_bound(earliest);
  if (after != values_.begin()) values_.erase(values_.begin(), std::prev(after));
  values_.insert_or_assign(from, std::move(values));
  return base::ok();
}

Status Shard::check(SliceId slice, Rank from, Step step, uint64_t bytes) const {
  const auto refuse = [&](std::string_view why) {
    return Status(Code::kRefused, fmt::format("slice {} of step {} from rank {} does not fit: {}",
                                              slice, step, from, why));
  };
  if (index(slice) >= served_.size() || served_[index(slice)] == nullptr)
    return refuse("not served here");
  if (!plan_.roles().isWorker(from)) return refuse("that rank is not a worker");
  const Served& here = served(slice);
  // These checks are the server's only defence: sizes, step and sender come from another rank,
  // and a part that is taken twice or for the wrong step would falsify the sum without a sign.
  if (here.step != step) return refuse(fmt::format("step {} is being collected", here.step));
  if (here.states[plan_.roles().workerPosition(from)] != PartState::kMissing)
    return refuse("it came already");
  if (bytes != here.home.size())
    return refuse(fmt::format("{} bytes, expected {}", bytes, here.home.size()));
  return base::ok();
}

Result<std::span<std::byte>> Shard::landing(SliceId slice, Rank from, Step step, uint64_t bytes) {
  SLUICE_RETURN_IF_ERROR(check(slice, from, step, bytes));
  const uint32_t position = plan_.roles().workerPosition(from);
  const auto& buffer = served(slice).buffers[position];
  SLUICE_CHECK(buffer != nullptr, slice, from);  // this rank's own part comes by contribute()
  served(slice).states[position] = PartState::kLanding;
  return std::span(buffer.get(), bytes);
}

bool Shard::arrived(SliceId slice, Rank from) {
  const Served& here = served(slice);
  const auto& buffer = here.buffers[plan_.roles().workerPosition(from)];
  return add(slice, from, {buffer.get(), here.home.size()});
}

Result<bool> Shard::contribute(SliceId slice, Rank from, Step step,
                               std::span<const std::byte> part) {
  SLUICE_RETURN_IF_ERROR(check(slice, from, step, part.size()));
  return add(slice, from, part);
}

uint64_t Shard::bytesOf(SliceId slice) const {
  return index(slice) < served_.size() && served_[index(slice)] ? served(slice).home.size() : 0;
}

Result<bool> Shard::contributeNothing(SliceId slice, Rank from, Step step) {
  const uint64_t bytes = bytesOf(slice);
  SLUICE_RETURN_IF_ERROR(check(slice, from, step, bytes));
  // Zeros take part in the sum like any gradient, so that the mean stays a mean over all
  // workers and the order of additions does not depend on who had one.
  if (zeros_.empty())
    zeros_.resize(accumulator_.size());  // never smaller than a slice; never resized again
  ++served(slice).empty;
  return add(slice, from, std::span(zeros_).first(bytes));
}

Result<bool> Shard::contributeVeto(SliceId slice, Rank from, Step step) {
  SLUICE_RETURN_IF_ERROR(check(slice, from, step, bytesOf(slice)));
  served(slice).isVetoed = true;
  return add(slice, from, {});
}

bool Shard::add(SliceId id, Rank from, std::span<const std::byte> part) {
  Served& here = served(id);
  const plan::Slice& slice = plan_.slice(id);
  const uint32_t position = plan_.roles().workerPosition(from);
  SLUICE_CHECK(here.states[position] != PartState::kHere, id, from);
  here.states[position] = PartState::kHere;
  here.parts[position] = part;
  stages_.enter(Stage::kCollect, here.step, slice, from);
  if (++here.arrived < here.parts.size()) return false;
  finish(slice, here);
  return true;
}

void Shard::finish(const plan::Slice& slice, Served& here) {
  here.lastWasEmpty = here.isVetoed || here.empty == here.parts.size();
  if (!here.lastWasEmpty) update(slice, here);
  // The slice is ready for the next step before its result is published: the fastest worker's
  // next part may come while the slowest is still being answered.
  std::ranges::fill(here.states, PartState::kMissing);
  here.arrived = 0;
  here.empty = 0;
  here.isVetoed = false;
  here.step = next(here.step);
}

void Shard::update(const plan::Slice& slice, Served& here) {
  const DType dtype = plan_.model()[slice.tensor].dtype;
  const auto sum =
      std::span(accumulator_).first(slice.count * sizeOf(kernel::accumulatorOf(dtype)));
  stages_.enter(Stage::kReduce, here.step, slice, self_);
  kernel::sumInRankOrder(dtype, sum, here.parts, meanScale_);
  stages_.enter(Stage::kUpdate, here.step, slice, self_);
  const Status applied =
      optimizer::applyStep(*update_.optimizer, here.state, here.home, sum, valuesFor(here.step));
  SLUICE_CHECK(applied.isOk(), applied.toString());  // the values were checked when they were set
}

const std::vector<double>& Shard::valuesFor(Step step) const {
  return std::prev(values_.upper_bound(step))->second;  // there is one for step 0
}

std::span<const std::byte> Shard::result(SliceId slice) const {
  return served(slice).home;
}

std::vector<ServedState> Shard::states() const {
  std::vector<ServedState> states;
  for (const SliceId id : plan_.slicesOn(self_)) {
    const plan::Slice& slice = plan_.slice(id);
    states.push_back({plan_.model()[slice.tensor].name, slice.offset, served(id).state});
  }
  return states;
}

Status Shard::restore(std::vector<ServedState> states) {
  std::map<std::pair<std::string_view, uint64_t>, optimizer::OptimizerState*> saved;
  for (ServedState& each : states) saved[{each.tensor, each.offset}] = &each.state;
  std::vector<std::pair<SliceId, optimizer::OptimizerState*>> found;
  // All states are judged before the first is put back, so that an error leaves the shard as it
  // was. States that are left over at the end were saved for slices that live elsewhere.
  for (const SliceId id : plan_.slicesOn(self_)) {
    const plan::Slice& slice = plan_.slice(id);
    const auto node = saved.extract({plan_.model()[slice.tensor].name, slice.offset});
    found.emplace_back(id, node ? node.mapped() : nullptr);
    if (!node) continue;
    const optimizer::OptimizerState& mine = served(id).state;
    const optimizer::OptimizerState& theirs = *node.mapped();
    if (theirs.optimizer() == mine.optimizer() && theirs.dtype() == mine.dtype() &&
        theirs.elements() == mine.elements())
      continue;
    return {Code::kInvalidArgument,
            fmt::format("'{}' was trained with {}, or cut into other slices; use the same "
                        "optimizer, servers and --slice-elements as then",
                        node.key().first, theirs.optimizer())};
  }
  if (!saved.empty()) {
    return {Code::kInvalidArgument,
            fmt::format("a slice of '{}' is not served here: it was saved on another rank or with "
                        "other slices; use the same servers and --slice-elements as then",
                        saved.begin()->first.first)};
  }
  for (const auto& [id, state] : found) {
    optimizer::OptimizerState& mine = served(id).state;
    mine = state != nullptr
               ? std::move(*state)
               : optimizer::OptimizerState(mine.optimizer(), mine.dtype(), mine.elements());
  }
  return base::ok();
}

std::set<Rank> Shard::contributors() const {
  std::set<Rank> ranks;
  for (const auto& each : served_) {
    if (each == nullptr) continue;
    for (size_t w = 0; w < each->states.size(); ++w) {
      if (each->states[w] != PartState::kMissing) ranks.insert(plan_.roles().workers[w]);
    }
  }
  return ranks;
}

std::vector<Rank> Shard::missing(SliceId slice) const {
  std::vector<Rank> ranks;
  const Served& here = served(slice);
  if (here.arrived == 0) return ranks;
  for (size_t w = 0; w < here.states.size(); ++w) {
    if (here.states[w] != PartState::kHere) ranks.push_back(plan_.roles().workers[w]);
  }
  return ranks;
}

}  // namespace sluice::shard
