// The work of the stager's own thread: it queues copies, and takes those that have ended.
#include <sluice/data/staging/stager.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <sluice/data/staging/precautions.h>

namespace sluice::staging {

Result<bool> Stager::advance() {
  bool moved = takeNews();
  // Results come first: a forward pass waits for them.
  for (const auto part :
       {&Stager::finishIn, &Stager::fillIn, &Stager::finishOut, &Stager::fillOut}) {
    SLUICE_ASSIGN_OR_RETURN(const bool has, (this->*part)());
    moved |= has;
  }
  return moved;
}

bool Stager::takeNews() {
  std::vector<News> all;
  {
    const base::Lock lock(mutex_);
    all.swap(inbox_);
  }
  for (News& news : all) {
    switch (news.kind) {
      case News::Kind::kBegun: begun(news.what.tensor, std::move(news.memory)); break;
      case News::Kind::kTarget: targets_[news.what.tensor] = news.target; break;
      case News::Kind::kResult: resultsHere_.emplace(news.what, std::move(news.result)); break;
      case News::Kind::kNoResult: hasNoResult(news.what.tensor); break;
      case News::Kind::kMark:
        // The mark stands for those who read the parameters before. All results that are still
        // to be copied wait for it, since they overwrite what is read.
        for (auto& [tensor, inward] : inward_) inward.ready = news.memory.ready;
        break;
    }
  }
  return !all.empty();
}

void Stager::hasNoResult(TensorId tensor) {
  // News of one tensor may come in either order, as two threads send them: a step without a
  // result may end before its beginning is known here.
  if (inward_.erase(tensor) == 0) hasNoResult_.insert(tensor);
}

void Stager::begun(TensorId tensor, DeviceMemory memory) {
  if (hasNoResult_.erase(tensor) > 0) return;
  inward_[tensor] = {std::move(memory.result), memory.ready};
  if (memory.gradient == nullptr) return;
  outward_[tensor] = {std::move(memory.gradient), std::move(memory.ready), begunSoFar_++};
  unproduced_.push_back(tensor);
}

// Gradients of one stream come in the order in which they were handed over, so only the oldest is
// asked.
Status Stager::noteProduced() {
  while (!unproduced_.empty()) {
    const TensorId tensor = unproduced_.front();
    const Outward& outward = outward_.at(tensor);
    if (outward.ready != nullptr) {
      SLUICE_ASSIGN_OR_RETURN(const bool isThere, outward.ready->isDone());
      if (!isThere) break;
    }
    unproduced_.pop_front();
    produced_.emplace(urgencyOf(tensor, outward), tensor);
  }
  return base::ok();
}

uint64_t Stager::urgencyOf(TensorId tensor, const Outward& outward) const {
  return terms_.order == Order::kUrgentFirst ? index(tensor) : outward.age;
}

// If no gradient is there yet, the oldest one's first copy is queued ahead: it begins at the moment
// when the device has made the gradient. One copy only: more urgent ones may come before the next.
std::optional<TensorId> Stager::nextOut() const {
  if (!produced_.empty()) return produced_.begin()->second;
  if (unproduced_.empty() || isAhead_) return std::nullopt;
  return unproduced_.front();
}

Result<bool> Stager::fillOut() {
  bool moved = false;
  while (out_.hasRoom()) {
    SLUICE_RETURN_IF_ERROR(noteProduced());
    const auto tensor = nextOut();
    if (!tensor) break;
    SLUICE_RETURN_IF_ERROR(issueOut(*tensor));
    moved = true;
  }
  return moved;
}

Status Stager::issueOut(TensorId tensor) {
  const auto found = outward_.find(tensor);
  Outward& outward = found->second;
  const bool isAhead = produced_.empty();
  const size_t number = outward.piecesIssued;
  const Piece& piece = piecesOf(tensor)[number];
  SLUICE_ASSIGN_OR_RETURN(Buffer buffer, out_.takeBuffer());
  // The copy waits on the device for the gradient, not on this thread: it can be queued while
  // the gradient is still being computed.
  const DeviceMark* after = takes(Precaution::kWaitForProducer) ? outward.ready.get() : nullptr;
  SLUICE_ASSIGN_OR_RETURN(auto end, terms_.device.copyToHost(*outward.gradient, piece.begin,
                                                             *buffer, piece.count, after));
  if (!takes(Precaution::kReturnOutBufferLate)) out_.returnBuffer(buffer);
  out_.push({.tensor = tensor,
             .piece = number,
             .begun = base::RealClock().now(),
             .buffer = std::move(buffer),
             .end = std::move(end),
             .keeps = takes(Precaution::kKeepGradient) ? outward.gradient : nullptr,
             .isAhead = isAhead});
  isAhead_ |= isAhead;
  if (++outward.piecesIssued < piecesOf(tensor).size()) return base::ok();
  if (isAhead) {
    unproduced_.pop_front();
  } else {
    produced_.erase(produced_.begin());
  }
  outward_.erase(found);
  return base::ok();
}

// Returns nothing if the target is not known yet.
std::span<std::byte> Stager::targetOf(TensorId tensor) const {
  const auto found = targets_.find(tensor);
  return found == targets_.end() ? terms_.mirrors[index(tensor)] : found->second;
}

Result<bool> Stager::finishOut() {
  bool moved = false;
  while (!out_.isEmpty()) {
    const std::span<std::byte> target = targetOf(out_.oldest().tensor);
    if (target.empty()) return moved;  // it comes soon: targetIs() waits for nothing
    SLUICE_ASSIGN_OR_RETURN(auto copy, out_.popEnded());
    if (!copy) return moved;
    moved = true;
    if (copy->isAhead) isAhead_ = false;
    const Piece& piece = piecesOf(copy->tensor)[copy->piece];
    std::memcpy(target.data() + piece.begin, copy->buffer->bytes().data(), piece.count);
    // A target is good for one step, and this was its last piece.
    if (piece.end() == target.size()) targets_.erase(copy->tensor);
    if (takes(Precaution::kReturnOutBufferLate)) out_.returnBuffer(std::move(copy->buffer));
    copy->keeps = nullptr;
    tellSlices(*copy);
  }
  return moved;
}

// Copies of one tensor end in order, so everything before the end of this one is here.
void Stager::tellSlices(const Copy& copy) {
  const size_t element = sizeOf(terms_.plan.model()[copy.tensor].dtype);
  const size_t elementsHere = piecesOf(copy.tensor)[copy.piece].end() / element;
  const auto slices = terms_.plan.slicesOf(copy.tensor);
  const auto endOf = [](const plan::Slice& slice) { return slice.offset + slice.count; };
  const auto whole = static_cast<size_t>(std::ranges::upper_bound(slices, elementsHere, {}, endOf) -
                                         slices.begin());
  size_t first = 0;
  {
    const base::Lock lock(mutex_);
    first = std::exchange(progress_[index(copy.tensor)].slicesHere, whole);
  }
  if (whole > first) listener_.onGradient(copy.tensor, first, whole - first, copy.begun);
}

Result<bool> Stager::fillIn() {
  bool moved = false;
  for (auto piece = resultsHere_.begin(); in_.hasRoom() && piece != resultsHere_.end();) {
    if (!inward_.contains(piece->first.tensor)) {  // it came before this rank had begun the step
      ++piece;
      continue;
    }
    SLUICE_RETURN_IF_ERROR(issueIn(piece->first, piece->second));
    piece = resultsHere_.erase(piece);
    moved = true;
  }
  return moved;
}

Status Stager::issueIn(const ResultPiece& what, const HostResult& result) {
  const auto found = inward_.find(what.tensor);
  Inward& inward = found->second;
  const Piece& piece = piecesOf(what.tensor)[what.piece];
  SLUICE_ASSIGN_OR_RETURN(Buffer buffer, in_.takeBuffer());
  std::memcpy(buffer->bytes().data(), result.bytes.data() + piece.begin, piece.count);
  const DeviceMark* after = takes(Precaution::kWaitForFormerReaders) ? inward.ready.get() : nullptr;
  SLUICE_ASSIGN_OR_RETURN(auto end, terms_.device.copyToDevice(*buffer, *inward.result, piece.begin,
                                                               piece.count, after));
  if (!takes(Precaution::kReturnInBufferLate)) in_.returnBuffer(buffer);
  const bool isLast = ++inward.piecesIssued == piecesOf(what.tensor).size();
  in_.push({.tensor = what.tensor,
            .piece = what.piece,
            .step = what.step,
            .buffer = std::move(buffer),
            .end = end,
            .keeps = takes(Precaution::kKeepResult) ? inward.result : nullptr,
            .isLast = isLast});
  if (isLast) inward_.erase(found);
  {
    const base::Lock lock(mutex_);
    Progress& progress = progress_[index(what.tensor)];
    // The mark of the latest copy stands for all before it, since they end in order.
    progress.landed = std::move(end);
    ++progress.piecesQueued;
    progress.isUnderWay = !isLast;
  }
  if (isLast) queued_.notifyAll();
  return base::ok();
}

Result<bool> Stager::finishIn() {
  bool moved = false;
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(auto copy, in_.popEnded());
    if (!copy) return moved;
    moved = true;
    if (takes(Precaution::kReturnInBufferLate)) in_.returnBuffer(std::move(copy->buffer));
    copy->keeps = nullptr;
    tellLanded(*copy);
  }
}

void Stager::tellLanded(const Copy& copy) {
  if (copy.isLast) listener_.onLanded(copy.tensor, copy.step);
}

}  // namespace sluice::staging
