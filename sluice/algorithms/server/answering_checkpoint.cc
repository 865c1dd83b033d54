#include <sluice/algorithms/server/answering_checkpoint.h>

#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/server/held_slice.h>
#include <sluice/algorithms/slices.h>
#include <sluice/algorithms/words.h>
#include <sluice/base/check.h>
#include <sluice/data/plan/order.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {
namespace {

using fabric::Landing;
using plan::Slice;

// Bytes to copy for a slice, in slices: the slice and its optimizer's state, which is up to twice
// as long (Adam).
constexpr size_t kSavedCopies = 3;

}  // namespace

// Asks every other server; this rank's own slices are read in take().
void AnsweringCheckpoint::prepare(const Done& done) {
  SLUICE_DCHECK(parts_.context.fabric.loop().inLoop());
  if (!hasCentre() || !parts_.roles().isWorker(parts_.self)) return done(base::ok());
  // A checkpoint before this one may have failed half-way. This one begins from nothing; asked_
  // still counts the answers that are owed to the other, so that a late one is not refused.
  held_.clear();
  held_.resize(parts_.plan().model().tensors.size());
  missing_.clear();
  for (const Slice& slice : parts_.plan().slices()) {
    if (slice.server != parts_.self) missing_.insert(slice.id);
  }
  if (missing_.empty()) return done(base::ok());
  whenPrepared_ = done;
  for (const SliceId id : std::set(missing_)) ask(parts_.plan().slice(id));
}

void AnsweringCheckpoint::ask(const Slice& slice) {
  ++asked_[slice.id];
  parts_.outbox.post({.slice = slice,
                      .stage = Stage::kPush,
                      .step = Step{0},
                      .to = slice.server,
                      .turn = plan::pushTurn(parts_.plan(), slice, parts_.self),
                      .payload = {},
                      .dtype = DType::kBytes,
                      .flags = answering::kAsksHeld,
                      .done = parts_.whenHere(slice.server, [] {})});
}

Result<Landing> AnsweringCheckpoint::landHeld(const Slice& slice, Rank from,
                                              const wire::Header& header) {
  if (header.length > longestHeldSlice(slice.count))
    return fabric::refusedStatus(header, "too long");
  const auto asked = asked_.find(slice.id);
  // An answer that nobody asked for could fill memory: each question admits one message, of a
  // length that no honest state exceeds.
  if (from != slice.server || asked == asked_.end())
    return fabric::refusedStatus(header, "nobody has asked");
  if (--asked->second == 0) asked_.erase(asked);
  const auto content = std::make_shared<std::vector<std::byte>>(header.length);
  return Landing{{content->data(), content->size()},
                 parts_.whenHere(from, [this, &slice, content] { heldIsHere(slice, *content); })};
}

void AnsweringCheckpoint::heldIsHere(const Slice& slice, const std::vector<std::byte>& bytes) {
  if (!whenPrepared_ || missing_.erase(slice.id) == 0) return;  // it has failed
  const auto read = readHeldSlice(bytes);
  // The bytes came from a rank of this job, yet they are judged like a stranger's: a damaged
  // state must not reach a checkpoint, where it would be noticed only when training is to go on
  // from it.
  if (!read.isOk() || read->parameters.size() != parts_.plan().bytesOf(slice)) {
    const Status damaged(
        Code::kDataLoss,
        fmt::format("rank {} has sent a damaged state of slice {}", slice.server, slice.id));
    parts_.context.refuse(slice.server, damaged);
    return fail(damaged);
  }
  keepHeld(slice, {read->parameters, read->optimizer ? &*read->optimizer : nullptr}, held_);
  if (missing_.empty()) std::exchange(whenPrepared_, nullptr)(base::ok());
}

void AnsweringCheckpoint::fail(const Status& why) {
  if (whenPrepared_) std::exchange(whenPrepared_, nullptr)(why);
}

void AnsweringCheckpoint::keepHeld(const Slice& slice, const HeldCentre::Held& held,
                                   std::vector<SavedTensor>& tensors) const {
  SavedTensor& tensor = tensors[index(slice.tensor)];
  // The tensor's place is made with its first slice, whichever server answers first; the other
  // slices find it and fill their own part.
  if (tensor.centre.empty()) tensor.centre.resize(parts_.plan().model()[slice.tensor].bytes());
  const auto place = partOf(parts_.plan(), std::span(tensor.centre), slice);
  if (!place.empty()) std::memcpy(place.data(), held.parameters.data(), place.size());
  if (held.optimizer != nullptr) tensor.served.insert_or_assign(slice.offset, *held.optimizer);
}

// Takes the state. Where workers have copies of the centre's parameters, this worker's become the
// saved ones: a checkpoint is the servers' model.
Result<std::vector<std::byte>> AnsweringCheckpoint::take() {
  if (!parts_.roles().isWorker(parts_.self)) return std::vector<std::byte>();
  SLUICE_CHECK(!hasCentre() || !held_.empty());  // it was prepared
  const OwnState* own = parts_.policy->own();
  CentreState state{.rank = index(parts_.self),
                    .steps = own == nullptr ? 0 : own->steps(),
                    .tensors = std::exchange(held_, {})};
  if (hasCentre()) {
    const auto& mine = parts_.plan().slicesOn(parts_.self);
    // Other workers' parts change the centre while this runs, so it is read on the loop. A
    // model may have gigabytes: between two pieces the loop sends heartbeats and serves the
    // others.
    SLUICE_RETURN_IF_ERROR(inPieces(parts_.context.fabric.loop(), mine.size(), [&](size_t i) {
      const Slice& slice = parts_.plan().slice(mine[i]);
      keepHeld(slice, parts_.policy->centre()->held(slice.id), state.tensors);
      return kSavedCopies * parts_.plan().bytesOf(slice);
    }));
  }
  const auto& tensors = parts_.plan().model().tensors;
  state.tensors.resize(tensors.size());
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    state.tensors[t].name = tensors[t].name;
    const auto place = parts_.context.memory[t].result;
    // For workers with copies the centre is the model, and this worker's copy is brought up to
    // it now, so that the parameters that the caller saves and this state agree. Workers with
    // models of their own (easgd) keep both.
    if (hasCentre() && parts_.policy->traits().copiesCentre) {
      std::memcpy(place.data(), state.tensors[t].centre.data(), place.size());
    } else if (hasCentre()) {
      state.tensors[t].own.assign(place.begin(), place.end());
    }
    if (own != nullptr) own->save(TensorId{t}, state.tensors[t]);
  }
  return state.toBytes();
}

Status AnsweringCheckpoint::restore(std::span<const std::byte> bytes) {
  const plan::Plan& plan = parts_.plan();
  if (bytes.empty() && hasCentre()) return base::ok();  // as it began
  SLUICE_ASSIGN_OR_RETURN(const CentreState state,
                          CentreState::readFor(plan, *parts_.context.update.optimizer, bytes));
  const bool isWorker = plan.roles().isWorker(parts_.self);
  const bool isOurs = state.rank == index(parts_.self);
  if (!isOurs && isWorker && !bytes.empty()) warnOfOthers(parts_.self, Rank{state.rank});
  // A server's part comes back on the rank that serves the slice now; a worker's own part only on
  // the rank that saved it. Residuals and momentum of another rank would be counted twice.
  for (uint32_t t = 0; t < plan.model().tensors.size(); ++t) {
    const SavedTensor* saved = state.find(plan.model().tensors[t].name);
    if (saved != nullptr && !saved->centre.empty())
      SLUICE_RETURN_IF_ERROR(restoreCentre(TensorId{t}, *saved));
    if (isWorker) restoreWorker(TensorId{t}, saved, isOurs);
  }
  if (OwnState* own = parts_.policy->own()) own->setSteps(state.steps);
  return base::ok();
}

// Puts back the slices of a tensor that this rank serves.
Status AnsweringCheckpoint::restoreCentre(TensorId tensor, const SavedTensor& saved) {
  const auto slices = parts_.plan().slicesOf(tensor);
  return inPieces(parts_.context.fabric.loop(), slices.size(), [&](size_t i) -> size_t {
    if (!server_.serves(slices[i])) return 0;
    const auto part = partOf(parts_.plan(), std::span<const std::byte>(saved.centre), slices[i]);
    parts_.policy->centre()->hold(slices[i].id, {part, findState(saved.served, slices[i])});
    return kSavedCopies * part.size();
  });
}

void AnsweringCheckpoint::restoreWorker(TensorId tensor, const SavedTensor* saved, bool isOurs) {
  const auto place = parts_.context.memory[index(tensor)].result;
  const auto* from = saved == nullptr                ? nullptr
                     : isOurs && !saved->own.empty() ? &saved->own
                     : !saved->centre.empty()        ? &saved->centre
                                                     : nullptr;
  if (from != nullptr) std::memcpy(place.data(), from->data(), place.size());
  if (OwnState* own = parts_.policy->own()) own->restore(tensor, isOurs ? saved : nullptr);
}

}  // namespace sluice::algorithms
