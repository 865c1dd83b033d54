#include <sluice/algorithms/server/answering_worker.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <sluice/algorithms/slices.h>
#include <sluice/algorithms/words.h>
#include <sluice/data/plan/order.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {

using fabric::Landing;
using plan::Slice;

AnsweringWorker::AnsweringWorker(AnsweringParts& parts, AnsweringServer& own)
    : parts_(parts),
      server_(own),
      contributions_(parts.context.fabric.loop(), parts.context.updatesWaitForWord,
                     [this](const Contribution& contribution) { begin(contribution); }),
      values_(parts.context.update.values),
      slices_(parts.plan().slices().size()),
      outcomes_(parts.context),
      toBegin_(tensorsAtOnce()),
      toOpen_(tensorsAtOnce()) {}

void AnsweringWorker::contribute(const Contribution& contribution) {
  contributions_.add(contribution);
  if (parts_.sendsBeforeWord) begin(contribution);
}

Status AnsweringWorker::decide(Decision decision) {
  auto held = contributions_.take();
  // Two ways lead here. Either the parts lie at their servers and the word follows them, or
  // everything still lies here and begins, or is discarded, as a whole. A step that is dropped
  // here leaves no trace at servers: they never count it, hence withoutDropped().
  if (parts_.sendsBeforeWord && !held.empty()) {
    if (decision == Decision::kDrop) {
      drop(std::move(held));
    } else {
      use(withoutDropped(held.front().step));
    }
    return base::ok();
  }
  if (decision == Decision::kDrop) {
    for (const Contribution& each : held) parts_.context.openDropped(each.tensor, each.step);
    ++dropped_;
    return base::ok();
  }
  std::ranges::reverse(held);  // forward needs first what backward made last
  for (const Contribution& each : held) begin(each);
  return base::ok();
}

void AnsweringWorker::use(Step step) {
  // A slice that awaits no answer has only its worker's own step left to make. That step
  // changes parameters, so it had to wait for the word too.
  undecided_ = Step{index(step) + 1};
  tellServers(step, answering::kUse);
  server_.use(parts_.self, step);
  for (const Slice& slice : parts_.plan().slices()) {
    if (own(slice).state == State::kAwaitingWord) finishSlice(slice, Travel::kPush, /*lag=*/0);
  }
}

// The gates stay closed until every part has left: until then gradients must not change, and the
// word must not overtake a part.
void AnsweringWorker::drop(std::vector<Contribution> sent) {
  for (OwnSlice& slice : slices_) slice.state = State::kIdle;
  dropping_ = std::move(sent);
  dropOnceSent();
}

void AnsweringWorker::dropOnceSent() {
  if (dropping_.empty() || sending_ > 0) return;
  const auto dropped = std::exchange(dropping_, {});
  tellServers(withoutDropped(dropped.front().step), answering::kDrop);
  server_.drop(parts_.self);
  ++dropped_;
  for (const Contribution& each : dropped) parts_.context.openDropped(each.tensor, each.step);
}

void AnsweringWorker::tellServers(Step step, wire::Flags word) {
  // Bulk is the lane of the parts, so a word cannot overtake the parts it is about.
  const fabric::Message message{.step = step, .stage = Stage::kUpdate, .flags = word};
  for (const Rank server : parts_.roles().servers) {
    if (server == parts_.self) continue;
    parts_.context.fabric.send(server, fabric::Lane::kBulk, message, {},
                               parts_.whenHere(server, [] { /* nothing to free */ }));
  }
}

void AnsweringWorker::begin(const Contribution& contribution) {
  for (const auto& [tensor, step, hasGradient] : toBegin_.add(contribution)) {
    outcomes_.begin(tensor, step, parts_.plan().slicesOf(tensor).size());
    for (const Slice& slice : parts_.plan().slicesOf(tensor)) beginSlice(slice, step, hasGradient);
  }
}

// Contributions that wait for the training thread's word wait as a whole.
bool AnsweringWorker::takesSlices() const {
  return parts_.isOverlapping && !parts_.context.updatesWaitForWord &&
         !parts_.format.readsWholeTensors();
}

void AnsweringWorker::contributeSlice(const SliceContribution& contribution) {
  if (contribution.isFirst())
    outcomes_.begin(contribution.tensor, contribution.step, contribution.slices);
  beginSlice(parts_.plan().slice(contribution.slice), contribution.step, /*hasGradient=*/true);
}

void AnsweringWorker::beginSlice(const Slice& slice, Step step, bool hasGradient) {
  own(slice).step = withoutDropped(step);
  own(slice).hasGradient = hasGradient;
  sendOrFinish(slice);
}

void AnsweringWorker::sendOrFinish(const Slice& slice) {
  OwnSlice& here = own(slice);
  // The last part of this slice is still with the network, in the only copy that there is. The
  // slice goes on from left(), with the same step: a worker may hand over a gradient sooner
  // than its last one has left.
  if (here.isLeaving) {
    here.state = State::kWaitingToSend;
    return;
  }
  const Travel travel = parts_.policy->travel(slice.id, here.step);
  here.state = travel == Travel::kAsk ? State::kAwaitingAnswer : State::kIdle;
  // The state is set before push(): the server on this rank may answer inside it, and its
  // answer has the last word on the state.
  const bool finishesHere = travel != Travel::kAsk;
  if (finishesHere && isUndecided(here.step)) here.state = State::kAwaitingWord;
  if (travel != Travel::kNothing) push(slice, travel);
  if (finishesHere && !isUndecided(here.step)) finishSlice(slice, travel, /*lag=*/0);
}

// Returns the slice as it is in the step that it is in.
WorkerSlice AnsweringWorker::inItsStep(const Slice& slice) const {
  const OwnSlice& here = slices_[index(slice.id)];
  const TensorMemory& memory = parts_.context.memory[index(slice.tensor)];
  return {.slice = slice,
          .step = here.step,
          .gradient = here.hasGradient ? partOf(parts_.plan(), memory.gradient, slice)
                                       : std::span<const std::byte>(),
          .parameters = partOf(parts_.plan(), memory.result, slice),
          .values = values_.at(here.step)};
}

void AnsweringWorker::push(const Slice& slice, Travel travel) {
  OwnSlice& here = own(slice);
  const auto said = parts_.format.part(inItsStep(slice));
  auto part = said.value_or(std::span<const std::byte>());
  auto flags = wire::Flags::kNone;
  if (travel == Travel::kAsk) flags = flags | answering::kAsks;
  if (!said) flags = flags | answering::kHasNone;
  if (parts_.sendsBeforeWord) flags = flags | answering::kWaitsForWord;
  if (slice.server == parts_.self) {
    // A part for this rank's own server goes straight to its desk, and the server sees no
    // difference to one that has landed.
    const auto buffer = parts_.format.bufferForPart(slice, parts_.self, part.size());
    if (!part.empty()) std::memcpy(buffer.value().data(), part.data(), part.size());
    return server_.arrived(slice, parts_.self, flags);
  }
  fabric::Done done;
  if (travel == Travel::kPush) {
    // Nobody waits for such a part, so the gate opens while it may still be in the queue, and
    // training writes the next gradient into the memory it came from. Hence a copy; a part with an
    // answer needs no copy, as the gate stays closed until the answer is here.
    here.leaving.assign(part.begin(), part.end());
    here.isLeaving = true;
    part = here.leaving;
  }
  if (travel == Travel::kPush || parts_.sendsBeforeWord) {
    ++sending_;
    done = parts_.whenHere(slice.server, [this, &slice, travel] { left(slice, travel); });
  }
  parts_.outbox.post({.slice = slice,
                      .stage = Stage::kPush,
                      .step = here.step,
                      .to = slice.server,
                      .turn = plan::pushTurn(parts_.plan(), slice, parts_.self),
                      .payload = {part.data(), part.size()},
                      .dtype = parts_.format.dtypeOf(slice),
                      .flags = flags,
                      .done = std::move(done),
                      .owner = parts_.context.memory[index(slice.tensor)].owner});
}

void AnsweringWorker::left(const Slice& slice, Travel travel) {
  --sending_;
  dropOnceSent();
  if (travel != Travel::kPush) return;
  own(slice).isLeaving = false;
  if (own(slice).state == State::kWaitingToSend) return sendOrFinish(slice);
  if (whenIdle_.empty() || !isIdle()) return;
  for (const Done& done : std::exchange(whenIdle_, {})) done(base::ok());
}

bool AnsweringWorker::isIdle() const {
  return std::ranges::none_of(slices_, [](const OwnSlice& each) { return each.isLeaving; });
}

void AnsweringWorker::whenIdle(const Done& done) {
  if (isIdle()) return done(base::ok());
  whenIdle_.push_back(done);
}

void AnsweringWorker::fail(const Status& why) {
  for (const Done& done : std::exchange(whenIdle_, {})) done(why);
}

Result<Landing> AnsweringWorker::landAnswer(const Slice& slice, Rank from,
                                            const wire::Header& header) {
  OwnSlice& here = own(slice);
  if (from != slice.server) return fabric::refusedStatus(header, "not from the slice's server");
  // An answer is taken once and for the step that waits for it. A server that answers twice, or
  // late, would otherwise write over parameters that forward is reading.
  if (here.state != State::kAwaitingAnswer || here.step != header.step)
    return fabric::refusedStatus(header, "not awaited");
  const uint64_t lag = static_cast<uint16_t>(header.flags) >> answering::kLagShift;
  if (lag > index(here.step) + 1) return fabric::refusedStatus(header, "older than the beginning");
  const auto buffer = parts_.format.bufferForAnswer(slice, header.length);
  if (!buffer) return fabric::refusedStatus(header, "not the slice's length");
  here.state = State::kAnswerLanding;
  return Landing{{buffer->data(), buffer->size()},
                 parts_.whenHere(from, [this, &slice, lag] { takeAnswer(slice, lag); })};
}

void AnsweringWorker::finishSlice(const Slice& slice, Travel travel, uint64_t lag) {
  own(slice).state = State::kIdle;
  const auto changed = parts_.policy->finish(inItsStep(slice), travel, lag);
  if (!changed.isOk()) return parts_.context.refuse(slice.server, changed.status());
  if (!outcomes_.add(slice, /*hasResult=*/*changed)) return;
  for (const TensorId tensor : toOpen_.add(slice.tensor)) outcomes_.open(tensor);
}

Status AnsweringWorker::setHyperparameters(const std::vector<double>& values, Step from) {
  if (!parts_.roles().isWorker(parts_.self)) return base::ok();
  SLUICE_RETURN_IF_ERROR(optimizer::checkValues(*parts_.context.update.optimizer, values));
  SLUICE_RETURN_IF_ERROR(parts_.policy->checkValues(values));
  from = withoutDropped(from);
  values_.set(from, values);
  server_.setHyperparameters(parts_.self, from, values);
  if (!parts_.policy->traits().serversStep) return base::ok();
  const auto payload = std::make_shared<const std::vector<double>>(values);
  const auto bytes = std::as_bytes(std::span(*payload));
  // Values travel on the lane of the parts and before them, so every server has them when the
  // first part of their step arrives. Each server gets them from each worker: under asp workers
  // are in different steps, and each part is applied with the values of its own.
  const fabric::Message message{.step = from, .stage = Stage::kUpdate, .dtype = DType::kF64};
  for (const Rank server : parts_.roles().servers) {
    if (server == parts_.self) continue;
    parts_.context.fabric.send(server, fabric::Lane::kBulk, message, {bytes.data(), bytes.size()},
                               parts_.whenHere(server, [payload] { /* stays alive until now */ }));
  }
  return base::ok();
}

std::string AnsweringWorker::describeWait(TensorId tensor) const {
  return describeMissing(parts_.plan(), tensor, outcomes_.slicesLeft(tensor),
                         [this](SliceId id) { return slices_[index(id)].state != State::kIdle; });
}

}  // namespace sluice::algorithms
