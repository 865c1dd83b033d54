#include <sluice/algorithms/server/collecting_worker.h>

#include <utility>

#include <sluice/algorithms/slices.h>
#include <sluice/algorithms/words.h>
#include <sluice/base/check.h>
#include <sluice/data/plan/order.h>

namespace sluice::algorithms {

using fabric::Landing;
using plan::Slice;

void CollectingWorker::contribute(const Contribution& contribution) {
  SLUICE_DCHECK(parts_.context.fabric.loop().inLoop());
  begin(contribution.tensor, contribution.step, parts_.plan().slicesOf(contribution.tensor).size());
  for (const Slice& slice : parts_.plan().slicesOf(contribution.tensor))
    expectResult(slice, contribution.step);
  for (const auto& [tensor, step, hasGradient] : toPush_.add(contribution)) {
    for (const Slice& slice : parts_.plan().slicesOf(tensor)) {
      if (hasGradient) {
        push(slice, step);
      } else {
        pushNothing(slice, step);
      }
    }
  }
}

// A result is expected of the slices that have come only: the bytes of the others are still being
// written, and the result may land in the same place.
void CollectingWorker::contributeSlice(const SliceContribution& contribution) {
  SLUICE_DCHECK(parts_.context.fabric.loop().inLoop());
  if (!parts_.isOverlapping) return Strategy::contributeSlice(contribution);
  if (contribution.isFirst()) begin(contribution.tensor, contribution.step, contribution.slices);
  const Slice& slice = parts_.plan().slice(contribution.slice);
  expectResult(slice, contribution.step);
  if (contribution.hasGradient) {
    push(slice, contribution.step);
  } else {
    pushNothing(slice, contribution.step);
  }
}

void CollectingWorker::begin(TensorId tensor, Step step, size_t slices) {
  outcomes_.begin(tensor, step, slices);
  unnotified_[index(tensor)] = slices;
  if (parts_.context.updatesWaitForWord) undecided_ = step;
}

void CollectingWorker::expectResult(const Slice& slice, Step step) {
  slices_[index(slice.id)] = {.state = State::kAwaited, .step = step};
}

void CollectingWorker::push(const Slice& slice, Step step) {
  if (slice.server == parts_.self) return contributeOwn(slice, step, OwnPart::kGradient);
  const TensorMemory& memory = parts_.context.memory[index(slice.tensor)];
  const auto gradient = partOf(parts_.plan(), memory.gradient, slice);
  parts_.outbox.post({.slice = slice,
                      .stage = Stage::kPush,
                      .step = step,
                      .to = slice.server,
                      .turn = plan::pushTurn(parts_.plan(), slice, parts_.self),
                      .payload = {gradient.data(), gradient.size()},
                      .dtype = parts_.dtypeOf(slice),
                      .owner = memory.owner});
}

void CollectingWorker::pushNothing(const Slice& slice, Step step) {
  if (slice.server == parts_.self) return contributeOwn(slice, step, OwnPart::kNothing);
  parts_.sendWord(slice, Stage::kPush, step, slice.server, collecting::kNoGradient);
}

// No slice is finished without the part of the worker beside its server. So an update that has to
// wait for the worker's word waits with that part, while all that has to travel is on its way.
void CollectingWorker::contributeOwn(const Slice& slice, Step step, OwnPart part) {
  if (parts_.context.updatesWaitForWord) {
    held_.push_back({slice.id, step, part});
  } else {
    server_.takeOwn(slice, step, part);
  }
}

Status CollectingWorker::decide(Decision decision) {
  SLUICE_DCHECK(parts_.context.fabric.loop().inLoop());
  if (!parts_.context.updatesWaitForWord)
    return {Code::kInvalidArgument,
            "servers update by themselves here; open the session with updatesWaitForWord"};
  undecided_.reset();
  // Results that other ranks' servers sent before this word were put off (landResult), so they
  // are offered again now. Own parts go the same way whatever the decision: a dropped one
  // becomes a veto, which ends the slice for all workers without a result.
  deferred_.resume(parts_.context.fabric);
  for (HeldPart held : std::exchange(held_, {})) {
    if (decision == Decision::kDrop) held.part = OwnPart::kVeto;
    decided_.push_back(held);
  }
  takeDecided();
  return base::ok();
}

// Takes a few slices at a time, from what backward made last, which is what forward needs first:
// their results are on their way while the others are calculated.
void CollectingWorker::takeDecided() {
  constexpr size_t kAtOnce = 8;
  for (size_t n = 0; n < kAtOnce && !decided_.empty(); ++n) {
    const HeldPart held = decided_.back();
    decided_.pop_back();
    server_.takeOwn(parts_.plan().slice(held.slice), held.step, held.part);
  }
  if (decided_.empty()) return;
  parts_.context.fabric.loop().post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) takeDecided();
  });
}

Result<Landing> CollectingWorker::landNotice(const Slice& slice, Rank from,
                                             const wire::Header& header) {
  SLUICE_RETURN_IF_ERROR(expectFrom(slice, from, header));
  SLUICE_RETURN_IF_ERROR(CollectingParts::expectNoPayload(header));
  if (std::exchange(slices_[index(slice.id)].isNotified, true))
    return fabric::refusedStatus(header, "the result was announced already");
  return Landing{{},
                 parts_.whenHere([this, &slice, step = header.step] { takeNotice(slice, step); })};
}

void CollectingWorker::takeNotice(const Slice& slice, Step step) {
  // MXNet's KVStore pulls a tensor as a whole, after its last part is ready; that wait is what
  // slicing took away, and it is kept here because these algorithms reproduce the published
  // ones.
  if (parts_.style.answer == Answer::kNotifyAndPullParts) return pull(slice, step);
  if (--unnotified_[index(slice.tensor)] > 0) return;
  for (const Slice& each : parts_.plan().slicesOf(slice.tensor)) {
    if (slices_[index(each.id)].isNotified) pull(each, step);
  }
}

void CollectingWorker::pull(const Slice& slice, Step step) {
  if (slice.server == parts_.self) return;
  parts_.sendWord(slice, Stage::kPublish, step, slice.server, collecting::kPull);
}

Result<Landing> CollectingWorker::landResult(const Slice& slice, Rank from, fabric::Lane lane,
                                             const wire::Header& header) {
  SLUICE_RETURN_IF_ERROR(expectFrom(slice, from, header));
  const bool isEmpty = has(header.flags, collecting::kNoGradient);
  // Another rank's worker was faster. Here no parameter may change yet.
  if (undecided_ == header.step && !isEmpty) return deferred_.defer(from, lane);
  if (header.length != (isEmpty ? 0 : parts_.plan().bytesOf(slice)))
    return fabric::refusedStatus(header, "not the slice's length");
  slices_[index(slice.id)].state = State::kLanding;
  const auto done = parts_.whenHere([this, &slice, isEmpty] { takeResult(slice, isEmpty); });
  if (isEmpty) return Landing{{}, done};
  const auto place = parts_.context.placeOf(slice, header.step);
  return Landing{{place.data(), place.size()}, done};
}

// A result is taken from the slice's server only, once, and for the step that this worker waits
// for.
Status CollectingWorker::expectFrom(const Slice& slice, Rank from,
                                    const wire::Header& header) const {
  const OwnSlice& here = slices_[index(slice.id)];
  if (from != slice.server) return fabric::refusedStatus(header, "not from the slice's server");
  if (here.state != State::kAwaited || here.step != header.step)
    return fabric::refusedStatus(header, "not awaited");
  return base::ok();
}

void CollectingWorker::takeResult(const Slice& slice, bool isEmpty) {
  slices_[index(slice.id)].state = State::kIdle;
  // The slice that this rank serves itself needs no pull, but it counts: the other slices of
  // its tensor are pulled only when every one is ready.
  if (slice.server == parts_.self && parts_.style.answer == Answer::kNotifyAndPull)
    takeNotice(slice, slices_[index(slice.id)].step);
  if (!outcomes_.add(slice, /*hasResult=*/!isEmpty)) return;
  for (const TensorId tensor : toOpen_.add(slice.tensor)) outcomes_.open(tensor);
}

std::string CollectingWorker::describeWait(TensorId tensor) const {
  const std::string missing =
      describeMissing(parts_.plan(), tensor, outcomes_.slicesLeft(tensor),
                      [this](SliceId id) { return slices_[index(id)].state != State::kIdle; });
  const std::string served = server_.describeWait(tensor);
  return served.empty() ? missing : missing + "; served here: " + served;
}

}  // namespace sluice::algorithms
