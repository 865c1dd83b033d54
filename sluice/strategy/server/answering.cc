#include <sluice/strategy/server/answering.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/fabric/common.h>
#include <sluice/kernel/reduce.h>
#include <sluice/plan/order.h>
#include <sluice/strategy/hand_over.h>
#include <sluice/strategy/outbox.h>
#include <sluice/strategy/pieces.h>
#include <sluice/strategy/server/collecting.h>
#include <sluice/strategy/server/held_slice.h>
#include <sluice/strategy/slices.h>
#include <sluice/strategy/values_by_step.h>

namespace sluice::strategy {
namespace {

using fabric::Landing;
using plan::Slice;

// The sender's own bits of a kPush message. Those of a kPublish message are the answer's lag.
constexpr auto kAsks = wire::Flags{0x0100};
constexpr auto kHasNone = wire::Flags{0x0200};  // this worker has nothing to say; no payload
// For a checkpoint, in no step: a worker asks what the server holds of a slice, and is told.
constexpr auto kAsksHeld = wire::Flags{0x0400};
constexpr auto kTellsHeld = wire::Flags{0x0800};
constexpr unsigned kLagShift = 8;

// A slice and its optimizer's state, which is up to twice as long (Adam).
constexpr size_t kSavedCopies = 3;

constexpr const char* kSurvivalSetting = "survive-loss";

std::vector<std::byte> pack(const Method::Held& held) {
  return packHeldSlice(held.parameters, held.optimizer);
}

class Asynchronous final : public Strategy {
 public:
  Asynchronous(const Rooms& rooms, std::unique_ptr<Method> method)
      : rooms_(rooms),
        self_(rooms.fabric.rank()),
        method_(std::move(method)),
        freight_(method_->freight()),
        outbox_(rooms, byUrgency(rooms.config)),
        handOver_(rooms, [this](const Handed& handed) { begin(handed); }),
        slices_(rooms.plan.slices().size()),
        tensors_(rooms.plan.model().tensors.size()),
        served_(rooms.plan.slices().size()),
        workers_(rooms.plan.roles().workers.size(), WorkerNews{ValuesByStep(rooms.update.values)}) {
    for (const SliceId id : rooms.plan.slicesOn(self_)) served_[index(id)].resize(workers_.size());
  }

  void gradientReady(TensorId tensor, Step step) override { handOver_.add({tensor, step, true}); }
  void gradientAbsent(TensorId tensor, Step step) override { handOver_.add({tensor, step, false}); }
  Result<Landing> onMessage(Rank from, fabric::Lane lane, const wire::Header& header) override;
  Status setHyperparameters(const std::vector<double>& values, Step from) override;
  Status decide(Decision decision) override;
  std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const override {
    return method_->firstStepWithout(stepsOfOther);
  }
  // Whose slices it served nobody else has.
  bool goesOnWithout(Rank lost) const override {
    return !rooms_.plan.roles().isServer(lost) && method_->goesOnWithoutLost();
  }
  void forget(Rank lost) override;
  void whenIdle(const Done& done) override;
  void prepareState(const Done& done) override;
  Result<std::vector<std::byte>> takeState() override;
  Status restore(std::span<const std::byte> bytes) override;
  void fail(const Status& why) override;
  std::string describeWait(TensorId tensor) const override;
  Statistics statistics() const override { return outbox_.statistics(); }

 private:
  using Bytes = std::vector<std::byte>;
  // The worker's side of a slice.
  enum class State : uint8_t {
    kIdle,
    kBlocked,  // the part of the step before has not left yet
    kAwaited,  // the answer is
    kLanding,  // the answer is coming in
  };
  struct OwnSlice {
    State state = State::kIdle;
    Step step{};  // those that were dropped are not counted: nobody has heard of them
    bool hasGradient = false;
    std::vector<std::byte>
        leaving;  // a part that nobody waits for: a copy, so that the gate can open
    bool isLeaving = false;
  };
  struct TensorState {
    Step step{};  // as its gate counts
    size_t slicesLeft = 0;
    bool isChanged = false;  // by this step
  };

  // The server's side of a slice, for one worker.
  struct Desk {
    Step next{};  // of the part that comes next
    bool isLanding = false;
    bool isOwedAnswer = false;
    bool isAnswering = false;  // the answer lies here until it has left
    bool isTelling = false;    // what the slice holds is on its way to the worker
    bool isBusy() const { return isLanding || isAnswering || isTelling; }
  };
  // What one worker has said, besides its parts.
  struct WorkerNews {
    ValuesByStep values;
    uint32_t valuesLanding = 0;       // hyperparameters whose payload is not here yet
    std::set<fabric::Lane> putOff{};  // pushes that wait for them, or for a desk
  };

  // The worker's side.
  void begin(const Handed& handed);
  void beginSlice(const Slice& slice);
  void push(const Slice& slice, Travel travel);
  void left(const Slice& slice);
  Result<Landing> landAnswer(const Slice& slice, Rank from, const wire::Header& header);
  void finishSlice(const Slice& slice, Travel travel, uint64_t lag);
  WorkerSlice workerSlice(const Slice& slice);

  // The server's side.
  Result<Landing> landPush(const Slice& slice, Rank from, fabric::Lane lane,
                           const wire::Header& header);
  void arrived(const Slice& slice, Rank from, wire::Flags flags);
  void answer(const Slice& slice, const std::vector<Rank>& workers);
  void answer(const Slice& slice, Rank to);
  Result<Landing> landHyperparameters(Rank from, const wire::Header& header);
  void resume(Rank from);

  // For checkpoints.
  bool isIdle() const {
    return std::ranges::none_of(slices_, [](const OwnSlice& each) { return each.isLeaving; });
  }
  Result<Landing> landAskForHeld(const Slice& slice, Rank from, fabric::Lane lane);
  Result<Landing> landHeld(const Slice& slice, Rank from, const wire::Header& header);
  void heldIsHere(const Slice& slice, const Bytes& bytes);
  void keepHeld(const Slice& slice, const Method::Held& held,
                std::vector<SavedTensor>& tensors) const;

  // Runs `then` if all is well with what `peer` and this rank send each other; else the step is
  // lost, unless that of others goes on.
  fabric::Done whenHere(Rank peer, std::function<void()> then) {
    return [this, peer, then = std::move(then)](const Status& status) {
      if (status.isOk()) return then();
      if (status.code() == Code::kPeerLost && goesOnWithout(peer)) return;
      rooms_.gates.fail(status);
      fail(status);
    };
  }
  void observe(Stage stage, const Slice& slice, Step step, Rank peer) const {
    if (rooms_.observer == nullptr) return;
    rooms_.observer->onStage(
        {stage, step, slice.tensor, slice.id, peer, rooms_.fabric.loop().now()});
  }
  Step withoutDropped(Step step) const { return Step{index(step) - dropped_}; }
  uint32_t positionOf(Rank worker) const { return rooms_.plan.roles().workerPosition(worker); }
  WorkerNews& newsOf(Rank worker) { return workers_[positionOf(worker)]; }
  Desk& deskOf(const Slice& slice, Rank worker) {
    return served_[index(slice.id)][positionOf(worker)];
  }
  OwnSlice& own(const Slice& slice) { return slices_[index(slice.id)]; }
  bool serves(const Slice& slice) const { return !served_[index(slice.id)].empty(); }

  const Rooms rooms_;
  const Rank self_;
  const std::unique_ptr<Method> method_;
  Freight& freight_;  // the method's
  Outbox outbox_;
  // A server takes a part in as it arrives, so an update that has to wait for the training thread's
  // word waits here, before anything has left.
  HandOver handOver_;
  std::vector<OwnSlice> slices_;      // by SliceId
  std::vector<TensorState> tensors_;  // by TensorId
  std::vector<std::vector<Desk>>
      served_;                       // by SliceId, then worker position; empty: lives elsewhere
  std::vector<WorkerNews> workers_;  // by worker position
  std::set<Rank> lost_;              // that this rank has gone on without
  std::vector<Done> whenIdle_;
  // What servers hold, as far as it has been told, for the checkpoint that is being made.
  Done whenPrepared_;  // null: none is
  std::map<SliceId, uint32_t>
      heldAsked_;  // answers that servers owe, also to a checkpoint that was given up
  std::set<SliceId> heldMissing_;
  std::vector<SavedTensor> held_;  // by TensorId; takeState() takes it
  uint64_t dropped_ = 0;           // steps
};

Status Asynchronous::decide(Decision decision) {
  auto held = handOver_.take();
  if (decision == Decision::kDrop) {
    for (const Handed& handed : held) rooms_.gates.openEmpty(handed.tensor, handed.step);
    ++dropped_;
    return base::ok();
  }
  std::ranges::reverse(held);  // what backward made last is what forward needs first
  for (const Handed& handed : held) begin(handed);
  return base::ok();
}

void Asynchronous::begin(const Handed& handed) {
  const auto slices = rooms_.plan.slicesOf(handed.tensor);
  tensors_[index(handed.tensor)] = {.step = handed.step, .slicesLeft = slices.size()};
  for (const Slice& slice : slices) {
    own(slice).step = withoutDropped(handed.step);
    own(slice).hasGradient = handed.hasGradient;
    beginSlice(slice);
  }
}

void Asynchronous::beginSlice(const Slice& slice) {
  OwnSlice& here = own(slice);
  if (here.isLeaving) {
    here.state = State::kBlocked;
    return;
  }
  const Travel travel = method_->travel(slice.id, here.step);
  here.state = travel == Travel::kAsk ? State::kAwaited : State::kIdle;
  if (travel != Travel::kNothing) push(slice, travel);
  if (travel != Travel::kAsk) finishSlice(slice, travel, /*lag=*/0);
}

// As it is in the step that it is in.
WorkerSlice Asynchronous::workerSlice(const Slice& slice) {
  const OwnSlice& here = own(slice);
  const TensorMemory& memory = rooms_.memory[index(slice.tensor)];
  return {.slice = slice,
          .step = here.step,
          .gradient = here.hasGradient ? partOf(rooms_.plan, memory.gradient, slice)
                                       : std::span<const std::byte>(),
          .parameters = partOf(rooms_.plan, memory.result, slice),
          .values = newsOf(self_).values.at(here.step)};
}

void Asynchronous::push(const Slice& slice, Travel travel) {
  OwnSlice& here = own(slice);
  const auto said = freight_.part(workerSlice(slice));
  auto part = said.value_or(std::span<const std::byte>());
  auto flags = wire::Flags::kNone;
  if (travel == Travel::kAsk) flags = flags | kAsks;
  if (!said) flags = flags | kHasNone;
  if (slice.server == self_) {
    const auto place = freight_.placeForPart(slice, self_, part.size());
    if (!part.empty()) std::memcpy(place.value().data(), part.data(), part.size());
    return arrived(slice, self_, flags);
  }
  fabric::Done done;
  if (travel == Travel::kPush) {
    here.leaving.assign(part.begin(), part.end());
    here.isLeaving = true;
    part = here.leaving;
    done = whenHere(slice.server, [this, &slice] { left(slice); });
  }
  outbox_.post({.slice = slice,
                .stage = Stage::kPush,
                .step = here.step,
                .to = slice.server,
                .turn = plan::pushTurn(rooms_.plan, slice, self_),
                .payload = {part.data(), part.size()},
                .dtype = freight_.dtypeOf(slice),
                .flags = flags,
                .done = std::move(done),
                .owner = rooms_.memory[index(slice.tensor)].owner});
}

void Asynchronous::left(const Slice& slice) {
  own(slice).isLeaving = false;
  if (own(slice).state == State::kBlocked) return beginSlice(slice);
  if (whenIdle_.empty() || !isIdle()) return;
  for (const Done& done : std::exchange(whenIdle_, {})) done(base::ok());
}

// What nobody waits for may still be on its way when every gate is open.
void Asynchronous::whenIdle(const Done& done) {
  if (isIdle()) return done(base::ok());
  whenIdle_.push_back(done);
}

void Asynchronous::fail(const Status& why) {
  for (const Done& done : std::exchange(whenIdle_, {})) done(why);
  if (whenPrepared_) std::exchange(whenPrepared_, nullptr)(why);
}

// Asks every other server for what it holds; what is held here comes in takeState(). Other workers
// go on meanwhile: it is as consistent as what a worker reads in a step, each slice by itself.
void Asynchronous::prepareState(const Done& done) {
  SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
  const plan::Plan& plan = rooms_.plan;
  if (method_->centre() == Method::Centre::kNone || !plan.roles().isWorker(self_))
    return done(base::ok());
  held_.clear();
  held_.resize(plan.model().tensors.size());
  heldMissing_.clear();
  for (const Slice& slice : plan.slices()) {
    if (slice.server != self_) heldMissing_.insert(slice.id);
  }
  if (heldMissing_.empty()) return done(base::ok());
  whenPrepared_ = done;
  for (const Slice& slice : plan.slices()) {
    if (slice.server == self_) continue;
    ++heldAsked_[slice.id];
    outbox_.post({.slice = slice,
                  .stage = Stage::kPush,
                  .step = Step{0},
                  .to = slice.server,
                  .turn = plan::pushTurn(plan, slice, self_),
                  .payload = {},
                  .dtype = DType::kBytes,
                  .flags = kAsksHeld,
                  .done = whenHere(slice.server, [] {})});
  }
}

Result<Landing> Asynchronous::landAskForHeld(const Slice& slice, Rank from, fabric::Lane lane) {
  if (deskOf(slice, from).isBusy()) {  // what it has pushed before is to be in it
    newsOf(from).putOff.insert(lane);
    return Landing::later();
  }
  deskOf(slice, from).isTelling = true;
  return Landing{{}, whenHere(from, [this, &slice, from] {
                   const auto content =
                       std::make_shared<const Bytes>(pack(method_->held(slice.id)));
                   outbox_.post({.slice = slice,
                                 .stage = Stage::kPush,
                                 .step = Step{0},
                                 .to = from,
                                 .turn = plan::publishTurn(rooms_.plan, slice, from),
                                 .payload = {content->data(), content->size()},
                                 .dtype = DType::kBytes,
                                 .flags = kTellsHeld,
                                 .done = whenHere(from, [this, &slice, from, content] {
                                   deskOf(slice, from).isTelling = false;
                                   resume(from);
                                 })});
                 })};
}

Result<Landing> Asynchronous::landHeld(const Slice& slice, Rank from, const wire::Header& header) {
  if (header.length > longestHeldSlice(slice.count))
    return fabric::refusedStatus(header, "too long");
  const auto asked = heldAsked_.find(slice.id);
  if (from != slice.server || asked == heldAsked_.end())
    return fabric::refusedStatus(header, "nobody has asked");
  if (--asked->second == 0) heldAsked_.erase(asked);
  const auto content = std::make_shared<Bytes>(header.length);
  return Landing{{content->data(), content->size()},
                 whenHere(from, [this, &slice, content] { heldIsHere(slice, *content); })};
}

void Asynchronous::heldIsHere(const Slice& slice, const Bytes& bytes) {
  if (!whenPrepared_ || heldMissing_.erase(slice.id) == 0) return;  // it has failed
  const auto read = readHeldSlice(bytes);
  if (!read.isOk() || read->parameters.size() != rooms_.plan.bytesOf(slice)) {
    const Status damaged(Code::kDataLoss, fmt::format("what rank {} told of slice {} is damaged",
                                                      slice.server, slice.id));
    rooms_.refuse(slice.server, damaged);
    if (whenPrepared_) std::exchange(whenPrepared_, nullptr)(damaged);
    return;
  }
  keepHeld(slice, {read->parameters, read->optimizer ? &*read->optimizer : nullptr}, held_);
  if (heldMissing_.empty()) std::exchange(whenPrepared_, nullptr)(base::ok());
}

void Asynchronous::keepHeld(const Slice& slice, const Method::Held& held,
                            std::vector<SavedTensor>& tensors) const {
  SavedTensor& tensor = tensors[index(slice.tensor)];
  if (tensor.centre.empty()) tensor.centre.resize(rooms_.plan.model()[slice.tensor].bytes());
  const auto place = partOf(rooms_.plan, std::span(tensor.centre), slice);
  if (!place.empty()) std::memcpy(place.data(), held.parameters.data(), place.size());
  if (held.optimizer != nullptr) tensor.served.insert_or_assign(slice.offset, *held.optimizer);
}

// Where workers have copies of the centre's parameters, this one's are those that are saved from
// now on: a checkpoint is the servers' model.
Result<std::vector<std::byte>> Asynchronous::takeState() {
  if (!rooms_.plan.roles().isWorker(self_)) return Bytes();
  SLUICE_CHECK(method_->centre() == Method::Centre::kNone || !held_.empty());  // it was prepared
  const OwnState* own = method_->own();
  CentreState state{.rank = index(self_),
                    .steps = own == nullptr ? 0 : own->steps(),
                    .tensors = std::exchange(held_, {})};
  if (method_->centre() != Method::Centre::kNone) {
    const auto& mine = rooms_.plan.slicesOn(self_);
    SLUICE_RETURN_IF_ERROR(inPieces(rooms_.fabric.loop(), mine.size(), [&](size_t i) {
      const Slice& slice = rooms_.plan.slice(mine[i]);
      keepHeld(slice, method_->held(slice.id), state.tensors);
      return kSavedCopies * rooms_.plan.bytesOf(slice);
    }));
  }
  const auto& tensors = rooms_.plan.model().tensors;
  state.tensors.resize(tensors.size());
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    state.tensors[t].name = tensors[t].name;
    const auto place = rooms_.memory[t].result;
    if (method_->centre() == Method::Centre::kCopiedByWorkers) {
      std::memcpy(place.data(), state.tensors[t].centre.data(), place.size());
    } else if (method_->centre() == Method::Centre::kOfItsOwn) {
      state.tensors[t].own.assign(place.begin(), place.end());
    }
    if (own != nullptr) own->save(TensorId{t}, state.tensors[t]);
  }
  return state.toBytes();
}

Status Asynchronous::restore(std::span<const std::byte> bytes) {
  const plan::Plan& plan = rooms_.plan;
  if (bytes.empty() && method_->centre() != Method::Centre::kNone)
    return base::ok();  // as it began
  SLUICE_ASSIGN_OR_RETURN(const CentreState state,
                          CentreState::readFor(plan, *rooms_.update.optimizer, bytes));
  const bool isWorker = plan.roles().isWorker(self_);
  const bool isOurs = state.rank == index(self_);
  if (!isOurs && isWorker && !bytes.empty()) warnOfOthers(self_, Rank{state.rank});
  for (uint32_t t = 0; t < plan.model().tensors.size(); ++t) {
    const SavedTensor* saved = state.find(plan.model().tensors[t].name);
    if (saved != nullptr && !saved->centre.empty()) {
      const auto slices = plan.slicesOf(TensorId{t});
      SLUICE_RETURN_IF_ERROR(inPieces(rooms_.fabric.loop(), slices.size(), [&](size_t i) -> size_t {
        if (!serves(slices[i])) return 0;
        const auto part = partOf(plan, std::span<const std::byte>(saved->centre), slices[i]);
        method_->hold(slices[i].id, {part, findState(saved->served, slices[i])});
        return kSavedCopies * part.size();
      }));
    }
    if (!isWorker) continue;
    const auto place = rooms_.memory[t].result;
    const auto* from = saved == nullptr                ? nullptr
                       : isOurs && !saved->own.empty() ? &saved->own
                       : !saved->centre.empty()        ? &saved->centre
                                                       : nullptr;
    if (from != nullptr) std::memcpy(place.data(), from->data(), place.size());
    if (OwnState* own = method_->own()) own->restore(TensorId{t}, isOurs ? saved : nullptr);
  }
  if (OwnState* own = method_->own()) own->setSteps(state.steps);
  return base::ok();
}

Result<Landing> Asynchronous::onMessage(Rank from, fabric::Lane lane, const wire::Header& header) {
  SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
  if (header.stage == Stage::kUpdate) return landHyperparameters(from, header);
  SLUICE_RETURN_IF_ERROR(checkSlice(rooms_.plan, header));
  const Slice& slice = rooms_.plan.slice(header.slice);
  if (header.stage == Stage::kPush && has(header.flags, kAsksHeld)) {
    const bool isGood = serves(slice) && rooms_.plan.roles().isWorker(from) && header.length == 0 &&
                        method_->centre() != Method::Centre::kNone;
    if (!isGood) return fabric::refusedStatus(header, "nothing to tell");
    return landAskForHeld(slice, from, lane);
  }
  if (header.stage == Stage::kPush && has(header.flags, kTellsHeld))
    return landHeld(slice, from, header);
  if (header.dtype != freight_.dtypeOf(slice))
    return fabric::refusedStatus(header, "the tensor is of another type");
  if (header.stage == Stage::kPush) return landPush(slice, from, lane, header);
  if (header.stage == Stage::kPublish) return landAnswer(slice, from, header);
  return fabric::refusedStatus(header, "no stage that travels");
}

Result<Landing> Asynchronous::landPush(const Slice& slice, Rank from, fabric::Lane lane,
                                       const wire::Header& header) {
  if (!serves(slice)) return fabric::refusedStatus(header, "not served here");
  if (!rooms_.plan.roles().isWorker(from))
    return fabric::refusedStatus(header, "that rank is not a worker");
  Desk& desk = deskOf(slice, from);
  WorkerNews& news = newsOf(from);
  if (desk.isBusy() || news.valuesLanding > 0) {
    news.putOff.insert(lane);
    return Landing::later();
  }
  if (desk.isOwedAnswer) return fabric::refusedStatus(header, "it waits for an answer");
  if (desk.next != header.step)
    return fabric::refusedStatus(header, fmt::format("step {} comes next", desk.next));
  const bool hasPart = !has(header.flags, kHasNone);
  if (!method_->mayCome(hasPart, has(header.flags, kAsks)))
    return fabric::refusedStatus(header, "no worker of this algorithm sends such a part");
  Freight::Place place = std::span<std::byte>();
  if (hasPart) {
    place = freight_.placeForPart(slice, from, header.length);
  } else if (header.length > 0) {
    place.reset();
  }
  if (!place) return fabric::refusedStatus(header, "not the slice's length");
  desk.isLanding = true;
  return Landing{{place->data(), place->size()},
                 whenHere(from, [this, &slice, from, flags = header.flags] {
                   deskOf(slice, from).isLanding = false;
                   arrived(slice, from, flags);
                   resume(from);
                 })};
}

void Asynchronous::arrived(const Slice& slice, Rank from, wire::Flags flags) {
  if (lost_.contains(from)) return;
  Desk& desk = deskOf(slice, from);
  const Step step = desk.next;
  desk.next = Step{index(step) + method_->period()};
  desk.isOwedAnswer = has(flags, kAsks);
  observe(Stage::kCollect, slice, step, from);
  observe(Stage::kUpdate, slice, step, from);
  const auto toAnswer = method_->take({.slice = slice,
                                       .from = from,
                                       .hasPart = !has(flags, kHasNone),
                                       .asks = has(flags, kAsks),
                                       .values = newsOf(from).values.at(step)});
  if (!toAnswer.isOk()) return rooms_.refuse(from, toAnswer.status());
  answer(slice, *toAnswer);
}

void Asynchronous::forget(Rank lost) {
  SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
  if (!lost_.insert(lost).second) return;
  for (const SliceId id : rooms_.plan.slicesOn(self_)) {
    deskOf(rooms_.plan.slice(id), lost).isOwedAnswer = false;
    answer(rooms_.plan.slice(id), method_->forget(id, lost));
  }
}

void Asynchronous::answer(const Slice& slice, const std::vector<Rank>& workers) {
  for (const Rank worker : workers) answer(slice, worker);
}

void Asynchronous::answer(const Slice& slice, Rank to) {
  Desk& desk = deskOf(slice, to);
  SLUICE_CHECK(desk.isOwedAnswer, slice.id, to);
  desk.isOwedAnswer = false;
  if (to == self_) {
    const uint64_t lag = method_->prepareAnswer(slice.id, to);
    const auto content = freight_.answer(slice, to);
    const auto place = freight_.placeForAnswer(slice, content.size());
    if (!content.empty()) std::memcpy(place.value().data(), content.data(), content.size());
    return finishSlice(slice, Travel::kAsk, lag);
  }
  const auto prepare = [this, &slice, to](fabric::ConstBuffer& payload, wire::Flags& flags) {
    const uint64_t lag = std::min(method_->prepareAnswer(slice.id, to), kMostLag);
    const auto content = freight_.answer(slice, to);
    payload = {content.data(), content.size()};
    flags = wire::Flags{static_cast<uint16_t>(lag << kLagShift)};
  };
  Outbox::Parcel parcel{.slice = slice,
                        .stage = Stage::kPublish,
                        .step = Step{index(desk.next) - method_->period()},
                        .to = to,
                        .turn = plan::publishTurn(rooms_.plan, slice, to),
                        .payload = {},
                        .dtype = freight_.dtypeOf(slice),
                        .done = whenHere(to, [this, &slice, to] {
                          deskOf(slice, to).isAnswering = false;
                          resume(to);
                        })};
  desk.isAnswering = true;
  if (const auto bytes = freight_.answerBytes(slice)) {
    parcel.payload.bytes = *bytes;
    parcel.atLast = prepare;
  } else {
    prepare(parcel.payload, parcel.flags);
  }
  outbox_.post(parcel);
}

Result<Landing> Asynchronous::landAnswer(const Slice& slice, Rank from,
                                         const wire::Header& header) {
  OwnSlice& here = own(slice);
  if (from != slice.server) return fabric::refusedStatus(header, "not from the slice's server");
  if (here.state != State::kAwaited || here.step != header.step)
    return fabric::refusedStatus(header, "not awaited");
  const uint64_t lag = static_cast<uint16_t>(header.flags) >> kLagShift;
  if (lag > index(here.step) + 1) return fabric::refusedStatus(header, "older than the beginning");
  const auto place = freight_.placeForAnswer(slice, header.length);
  if (!place) return fabric::refusedStatus(header, "not the slice's length");
  here.state = State::kLanding;
  return Landing{{place->data(), place->size()},
                 whenHere(from, [this, &slice, lag] { finishSlice(slice, Travel::kAsk, lag); })};
}

void Asynchronous::finishSlice(const Slice& slice, Travel travel, uint64_t lag) {
  OwnSlice& here = own(slice);
  here.state = State::kIdle;
  const auto changed = method_->finish(workerSlice(slice), travel, lag);
  if (!changed.isOk()) return rooms_.refuse(slice.server, changed.status());
  observe(Stage::kApplied, slice, here.step, slice.server);
  TensorState& tensor = tensors_[index(slice.tensor)];
  if (*changed) tensor.isChanged = true;
  if (--tensor.slicesLeft > 0) return;
  if (tensor.isChanged) {
    rooms_.gates.open(slice.tensor, tensor.step);
  } else {
    rooms_.gates.openEmpty(slice.tensor, tensor.step);
  }
}

// Every worker tells every server its own, in a message that goes ahead of the pushes they are for.
Status Asynchronous::setHyperparameters(const std::vector<double>& values, Step from) {
  SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
  const plan::Roles& roles = rooms_.plan.roles();
  if (!roles.isWorker(self_)) return base::ok();
  SLUICE_RETURN_IF_ERROR(optimizer::checkValues(*rooms_.update.optimizer, values));
  SLUICE_RETURN_IF_ERROR(method_->checkValues(values));
  from = withoutDropped(from);
  newsOf(self_).values.set(from, values);
  if (!method_->serversStep()) return base::ok();
  const auto payload = std::make_shared<const std::vector<double>>(values);
  const auto bytes = std::as_bytes(std::span(*payload));
  const fabric::Message message{.step = from, .stage = Stage::kUpdate, .dtype = DType::kF64};
  for (const Rank server : roles.servers) {
    if (server == self_) continue;
    rooms_.fabric.send(server, fabric::Lane::kBulk, message, {bytes.data(), bytes.size()},
                       whenHere(server, [payload] { /* stays alive until now */ }));
  }
  return base::ok();
}

Result<Landing> Asynchronous::landHyperparameters(Rank from, const wire::Header& header) {
  if (!rooms_.plan.roles().isWorker(from))
    return fabric::refusedStatus(header, "that rank is not a worker");
  const size_t count = rooms_.update.values.size();
  if (header.dtype != DType::kF64 || header.length != count * sizeof(double))
    return fabric::refusedStatus(header, "not the hyperparameters of this optimizer");
  auto values = std::make_shared<std::vector<double>>(count);
  const auto place = std::as_writable_bytes(std::span(*values));
  ++newsOf(from).valuesLanding;
  return Landing{{place.data(), place.size()},
                 whenHere(from, [this, from, values, step = header.step] {
                   --newsOf(from).valuesLanding;
                   const Status good = optimizer::checkValues(*rooms_.update.optimizer, *values);
                   if (!good.isOk()) return rooms_.refuse(from, good);
                   newsOf(from).values.set(step, std::move(*values));
                   resume(from);
                 })};
}

void Asynchronous::resume(Rank from) {
  for (const auto lane : std::exchange(newsOf(from).putOff, {})) rooms_.fabric.resume(from, lane);
}

std::string Asynchronous::describeWait(TensorId tensor) const {
  std::string served;
  for (const Slice& slice : rooms_.plan.slicesOf(tensor)) {
    if (!serves(slice)) continue;
    const std::string wait = method_->describeWait(slice.id);
    if (!wait.empty())
      served += fmt::format("{}slice {} {}", served.empty() ? "" : ", ", slice.id, wait);
  }
  std::string text =
      describeMissing(rooms_.plan, tensor, tensors_[index(tensor)].slicesLeft,
                      [this](SliceId id) { return slices_[index(id)].state != State::kIdle; });
  if (!served.empty()) text += fmt::format("; served here: {}", served);
  return text;
}

}  // namespace

Status chooseAsynchronous(const base::Config& config, plan::PlanSpec& spec) {
  return chooseSlices(config, plan::Placement::kSharded, kShardedSlice, spec);
}

Status chooseSurvival(const base::Config& config, plan::PlanSpec& spec) {
  if (!config.isOn(option::kSurviveLoss)) return base::ok();
  const plan::Roles& roles = spec.roles;
  if (std::ranges::all_of(roles.workers, [&](Rank worker) { return roles.isServer(worker); })) {
    return {Code::kInvalidArgument,
            "--survive-loss is for workers that serve nothing, and here all serve: give --servers "
            "dedicated:K"};
  }
  spec.settings[kSurvivalSetting] = "on";
  return base::ok();
}

bool survivesLoss(const plan::PlanSpec& spec) {
  return spec.settings.contains(kSurvivalSetting);
}

std::unique_ptr<Strategy> makeAsynchronous(const Rooms& rooms, std::unique_ptr<Method> method) {
  return std::make_unique<Asynchronous>(rooms, std::move(method));
}

}  // namespace sluice::strategy
