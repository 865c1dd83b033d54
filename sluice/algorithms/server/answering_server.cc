#include <sluice/algorithms/server/answering_server.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/server/held_slice.h>
#include <sluice/algorithms/words.h>
#include <sluice/base/check.h>
#include <sluice/data/plan/order.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {

using fabric::Landing;
using plan::Slice;

AnsweringServer::AnsweringServer(AnsweringParts& parts, OnOwnAnswer onOwnAnswer)
    : parts_(parts),
      onOwnAnswer_(std::move(onOwnAnswer)),
      updates_(parts.context.fabric.loop(), updateRate(parts.context.config),
               queue::SendOrder::kPriority),
      desks_(parts.plan().slices().size()),
      workers_(parts.roles().workers.size(),
               WorkerNews{ValuesByStep(parts.context.update.values)}) {
  for (const SliceId id : parts.plan().slicesOn(parts.self))
    desks_[index(id)].resize(workers_.size());
}

Result<Landing> AnsweringServer::landPush(const Slice& slice, Rank from, fabric::Lane lane,
                                          const wire::Header& header) {
  if (!serves(slice)) return fabric::refusedStatus(header, "not served here");
  if (!parts_.roles().isWorker(from))
    return fabric::refusedStatus(header, "that rank is not a worker");
  Desk& desk = deskOf(slice, from);
  // A desk is one buffer for one worker at one slice. While something lies in it, the worker's
  // next part stays with its sender. Hyperparameters travel ahead of the parts they are for, so
  // a part behind values whose payload is not here yet waits as well.
  if (desk.isBusy() || newsOf(from).valuesLanding > 0) return deferred_.defer(from, lane);
  const bool waits = has(header.flags, answering::kWaitsForWord);
  if (waits != parts_.sendsBeforeWord)
    return fabric::refusedStatus(header, "no worker of this job sends such a part");
  // A part that is decided but not yet taken in is only a moment away from an empty desk; one
  // without a word cannot be followed by another, since a worker decides step by step.
  if (desk.held) {
    const bool isDecided = desk.next < newsOf(from).undecided;
    if (isDecided) return deferred_.defer(from, lane);  // until takeHeld()
    return fabric::refusedStatus(header, "its last part waits for a word");
  }
  if (desk.isOwedAnswer) return fabric::refusedStatus(header, "it waits for an answer");
  if (desk.next != header.step)
    return fabric::refusedStatus(header, fmt::format("step {} comes next", desk.next));
  const bool hasPart = !has(header.flags, answering::kHasNone);
  if (!parts_.policy->mayCome(hasPart, has(header.flags, answering::kAsks)))
    return fabric::refusedStatus(header, "no worker of this algorithm sends such a part");
  PayloadFormat::Buffer buffer = std::span<std::byte>();
  if (hasPart) {
    buffer = parts_.format.bufferForPart(slice, from, header.length);
  } else if (header.length > 0) {
    buffer.reset();
  }
  if (!buffer) return fabric::refusedStatus(header, "not the slice's length");
  // The desk is marked before the payload comes: until `done` runs, the network writes into it,
  // and neither an answer nor another part may use it.
  desk.isLanding = true;
  return Landing{{buffer->data(), buffer->size()},
                 parts_.whenHere(from, [this, &slice, from, flags = header.flags] {
                   deskOf(slice, from).isLanding = false;
                   arrived(slice, from, flags);
                   resume(from);
                 })};
}

void AnsweringServer::arrived(const Slice& slice, Rank from, wire::Flags flags) {
  Desk& desk = deskOf(slice, from);
  parts_.context.stages().enter(Stage::kCollect, desk.next, slice, from);
  // A word to use a step may overtake parts of it that still wait in their worker's outbox.
  // Such a part need not wait here at all.
  const bool isDecided = desk.next < newsOf(from).undecided;
  if (!has(flags, answering::kWaitsForWord) || isDecided) return takePart(slice, from, flags);
  desk.held = flags;
}

void AnsweringServer::use(Rank worker, Step step) {
  newsOf(worker).undecided = Step{index(step) + 1};
  takeHeld(worker);
}

void AnsweringServer::takeHeld(Rank worker) {
  for (const SliceId id : parts_.plan().slicesOn(parts_.self)) {
    const Slice& slice = parts_.plan().slice(id);
    if (const auto flags = std::exchange(deskOf(slice, worker).held, std::nullopt))
      takePart(slice, worker, *flags);
  }
}

void AnsweringServer::drop(Rank worker) {
  for (const SliceId id : parts_.plan().slicesOn(parts_.self))
    deskOf(parts_.plan().slice(id), worker).held.reset();
}

bool AnsweringServer::isLandingFrom(Rank worker) const {
  return std::ranges::any_of(parts_.plan().slicesOn(parts_.self), [&](SliceId id) {
    return deskOf(parts_.plan().slice(id), worker).isLanding;
  });
}

// A word to drop changes the desks at once: the next message may bring a part of the step's next
// attempt.
Result<Landing> AnsweringServer::landWord(Rank from, fabric::Lane lane,
                                          const wire::Header& header) {
  if (!parts_.roles().isWorker(from))
    return fabric::refusedStatus(header, "that rank is not a worker");
  WorkerNews& news = newsOf(from);
  const bool isUse = has(header.flags, answering::kUse);
  const bool isDrop = has(header.flags, answering::kDrop);
  if (!parts_.sendsBeforeWord || isUse == isDrop || header.length > 0)
    return fabric::refusedStatus(header, "no worker of this job sends such a word");
  if (header.step != news.undecided)
    return fabric::refusedStatus(header,
                                 fmt::format("a word on step {} comes next", news.undecided));
  // A drop must not clear a desk that the network still writes to, so it is put off until the part
  // is here. Messages behind it on the lane wait too, so the order of words and parts stays.
  if (news.valuesLanding > 0 || (isDrop && isLandingFrom(from))) return deferred_.defer(from, lane);
  if (isDrop) {
    drop(from);
    return Landing{{}, parts_.whenHere(from, [] { /* nothing more to do */ })};
  }
  news.undecided = Step{index(header.step) + 1};
  return Landing{{}, parts_.whenHere(from, [this, from] {
                   takeHeld(from);
                   resume(from);
                 })};
}

void AnsweringServer::takePart(const Slice& slice, Rank from, wire::Flags flags) {
  if (lost_.contains(from)) return;
  // The desk moves on to the worker's next step before the policy is asked. A policy may
  // release the worker at once, and the answer then finds the desk in the state in which
  // answer() needs it.
  Desk& desk = deskOf(slice, from);
  const Step step = desk.next;
  desk.next = Step{index(step) + parts_.policy->traits().period};
  desk.isOwedAnswer = has(flags, answering::kAsks);
  parts_.context.stages().enter(Stage::kUpdate, step, slice, from);
  const bool hasPart = !has(flags, answering::kHasNone);
  auto toAnswer = parts_.policy->take({.slice = slice,
                                       .from = from,
                                       .hasPart = hasPart,
                                       .asks = has(flags, answering::kAsks),
                                       .values = newsOf(from).values.at(step)});
  if (!toAnswer.isOk()) return parts_.context.refuse(from, toAnswer.status());
  updates_.add(slice, step, hasPart ? parts_.plan().bytesOf(slice) : 0,
               [this, &slice, workers = *std::move(toAnswer)] { answer(slice, workers); });
}

void AnsweringServer::forget(Rank lost) {
  // A lost worker keeps others waiting in two ways: its desk may hold a part, and the policy
  // may count its clock as the slowest. Both are cleared here, and those whom only it kept
  // waiting are answered.
  if (!lost_.insert(lost).second) return;
  for (const SliceId id : parts_.plan().slicesOn(parts_.self)) {
    const Slice& slice = parts_.plan().slice(id);
    deskOf(slice, lost).isOwedAnswer = false;
    deskOf(slice, lost).held.reset();
    answer(slice, parts_.policy->forget(id, lost));
  }
}

void AnsweringServer::answer(const Slice& slice, const std::vector<Rank>& workers) {
  for (const Rank worker : workers) {
    if (!lost_.contains(worker)) answer(slice, worker);
  }
}

void AnsweringServer::answer(const Slice& slice, Rank to) {
  Desk& desk = deskOf(slice, to);
  SLUICE_CHECK(desk.isOwedAnswer, slice.id, to);
  desk.isOwedAnswer = false;
  // The answer to the worker on this rank waits for no network, so it is made and copied at
  // once.
  if (to == parts_.self) {
    const uint64_t lag = parts_.policy->prepareAnswer(slice.id, to);
    const auto content = parts_.format.answer(slice, to);
    const auto buffer = parts_.format.bufferForAnswer(slice, content.size());
    if (!content.empty()) std::memcpy(buffer.value().data(), content.data(), content.size());
    return onOwnAnswer_(slice, lag);
  }
  // An answer waits in the outbox for its turn. Where its length is known beforehand it is made
  // when the network takes it, so that parts which come meanwhile are in it; the worker's copy
  // is then as fresh as it can be. Where the length follows from the content (a codec), it has
  // to be made now, because credit is counted in bytes.
  const auto prepare = [this, &slice, to](fabric::ConstBuffer& payload, wire::Flags& flags) {
    const uint64_t lag = std::min(parts_.policy->prepareAnswer(slice.id, to), answering::kMostLag);
    const auto content = parts_.format.answer(slice, to);
    payload = {content.data(), content.size()};
    flags = wire::Flags{static_cast<uint16_t>(lag << answering::kLagShift)};
  };
  Outbox::Parcel parcel{.slice = slice,
                        .stage = Stage::kPublish,
                        .step = Step{index(desk.next) - parts_.policy->traits().period},
                        .to = to,
                        .turn = plan::publishTurn(parts_.plan(), slice, to),
                        .payload = {},
                        .dtype = parts_.format.dtypeOf(slice),
                        .done = parts_.whenHere(to, [this, &slice, to] {
                          deskOf(slice, to).isAnswering = false;
                          resume(to);
                        })};
  desk.isAnswering = true;
  if (const auto bytes = parts_.format.answerBytes(slice)) {
    parcel.payload.bytes = *bytes;
    parcel.atLast = prepare;
  } else {
    prepare(parcel.payload, parcel.flags);
  }
  parts_.outbox.post(parcel);
}

Result<Landing> AnsweringServer::landQuestion(const Slice& slice, Rank from, fabric::Lane lane,
                                              const wire::Header& header) {
  const bool isGood = serves(slice) && parts_.roles().isWorker(from) && header.length == 0 &&
                      parts_.policy->centre() != nullptr;
  if (!isGood) return fabric::refusedStatus(header, "nothing to tell");
  // The answer must contain the worker's last part, so it waits for that.
  if (deskOf(slice, from).isBusy()) return deferred_.defer(from, lane);
  deskOf(slice, from).isTelling = true;
  return Landing{{}, parts_.whenHere(from, [this, &slice, from] { tellHeld(slice, from); })};
}

void AnsweringServer::tellHeld(const Slice& slice, Rank to) {
  const auto held = parts_.policy->centre()->held(slice.id);
  // The state is copied, since it changes with every part that arrives while the network still
  // reads it.
  const auto content = std::make_shared<const std::vector<std::byte>>(
      packHeldSlice(held.parameters, held.optimizer));
  parts_.outbox.post({.slice = slice,
                      .stage = Stage::kPush,
                      .step = Step{0},
                      .to = to,
                      .turn = plan::publishTurn(parts_.plan(), slice, to),
                      .payload = {content->data(), content->size()},
                      .dtype = DType::kBytes,
                      .flags = answering::kTellsHeld,
                      .done = parts_.whenHere(to, [this, &slice, to, content] {
                        deskOf(slice, to).isTelling = false;
                        resume(to);
                      })});
}

Result<Landing> AnsweringServer::landHyperparameters(Rank from, const wire::Header& header) {
  if (!parts_.roles().isWorker(from))
    return fabric::refusedStatus(header, "that rank is not a worker");
  const size_t count = parts_.context.update.values.size();
  if (header.dtype != DType::kF64 || header.length != count * sizeof(double))
    return fabric::refusedStatus(header, "not the hyperparameters of this optimizer");
  auto values = std::make_shared<std::vector<double>>(count);
  const auto buffer = std::as_writable_bytes(std::span(*values));
  // From here until the values are in place, parts of this worker are put off (landPush): the
  // first of them may be for the step that these values begin with.
  ++newsOf(from).valuesLanding;
  return Landing{{buffer.data(), buffer.size()},
                 parts_.whenHere(from, [this, from, values, step = header.step] {
                   --newsOf(from).valuesLanding;
                   const Status good =
                       optimizer::checkValues(*parts_.context.update.optimizer, *values);
                   if (!good.isOk()) return parts_.context.refuse(from, good);
                   setHyperparameters(from, step, *values);
                   resume(from);
                 })};
}

void AnsweringServer::setHyperparameters(Rank worker, Step from,
                                         const std::vector<double>& values) {
  newsOf(worker).values.set(from, values);
}

void AnsweringServer::resume(Rank from) {
  deferred_.resume(parts_.context.fabric, from);
}

std::string AnsweringServer::describeWait(TensorId tensor) const {
  std::string text;
  for (const Slice& slice : parts_.plan().slicesOf(tensor)) {
    if (!serves(slice)) continue;
    const std::string wait = parts_.policy->describeWait(slice.id);
    if (!wait.empty())
      text += fmt::format("{}slice {} {}", text.empty() ? "" : ", ", slice.id, wait);
  }
  return text;
}

}  // namespace sluice::algorithms
