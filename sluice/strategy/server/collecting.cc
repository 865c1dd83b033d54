#include <sluice/strategy/server/collecting.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/fabric/common.h>
#include <sluice/plan/order.h>
#include <sluice/shard/shard.h>
#include <sluice/strategy/outbox.h>
#include <sluice/strategy/pieces.h>
#include <sluice/strategy/slices.h>

namespace sluice::strategy {
namespace {

using fabric::Landing;
using plan::Slice;

// What the sender's own bits of a kPublish message say; with neither, it is the result itself.
constexpr auto kNotify = wire::Flags{0x0100};  // server to worker: the result is ready, ask for it
constexpr auto kPull = wire::Flags{0x0200};    // worker to server: send it
// Of a kPush message: this worker has no gradient. Of a result: no worker had one. Either has no
// payload.
constexpr auto kNoGradient = wire::Flags{0x0400};

class ParameterServer final : public Strategy {
 public:
  ParameterServer(const Rooms& rooms, const ServerStyle& style, std::unique_ptr<shard::Shard> shard)
      : rooms_(rooms),
        self_(rooms.fabric.rank()),
        answer_(style.answer),
        overlaps_(style.overlaps),
        shard_(std::move(shard)),
        outbox_(rooms, style.egress),
        slices_(rooms.plan.slices().size()),
        slicesLeft_(rooms.plan.model().tensors.size()) {}

  void gradientReady(TensorId tensor, Step step) override {
    SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
    expectResult(tensor, step);
    handedOver({tensor, step, Own::kGradient});
  }

  void gradientAbsent(TensorId tensor, Step step) override {
    SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
    expectResult(tensor, step);
    handedOver({tensor, step, Own::kNothing});
  }

  Result<Landing> onMessage(Rank from, fabric::Lane lane, const wire::Header& header) override {
    SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
    if (header.stage == Stage::kUpdate) return landHyperparameters(from, header);
    SLUICE_RETURN_IF_ERROR(checkSliceAndType(rooms_.plan, header));
    const Slice& slice = rooms_.plan.slice(header.slice);
    if (header.stage == Stage::kPush) {
      if (from == firstWorker() && valuesLanding_ > 0) {
        putOff_.insert(lane);
        return Landing::later();
      }
      return landPush(slice, from, header);
    }
    if (header.stage != Stage::kPublish)
      return fabric::refusedStatus(header, "no stage that travels");
    if (has(header.flags, kNotify)) return landNotice(slice, from, header);
    if (has(header.flags, kPull)) return landPull(slice, from, header);
    return landResult(slice, from, lane, header);
  }

  Status setHyperparameters(const std::vector<double>& values, Step from) override;
  Status decide(Decision decision) override;
  Result<std::vector<std::byte>> takeState() override;
  Status restore(std::span<const std::byte> state) override;
  std::set<Rank> ahead() const override { return shard_->contributors(); }

  std::string describeWait(TensorId tensor) const override;

  Statistics statistics() const override { return outbox_.statistics(); }

 private:
  enum class SliceState : uint8_t { kIdle, kAwaited, kLanding };
  struct WorkerSlice {
    SliceState state = SliceState::kIdle;
    Step step{};
    bool isPulled = false;  // the server has said that the result is ready, and was asked for it
  };

  // What this rank's worker has for a slice that this rank serves.
  enum class Own : uint8_t { kGradient, kNothing, kVeto };
  struct Held {
    SliceId slice{};
    Step step{};
    Own own{};
  };

  struct HandedOver {
    TensorId tensor{};
    Step step{};
    Own own{};
  };
  enum class Outcome { kResult, kEmpty };

  // The worker's side.
  void handedOver(const HandedOver& one);
  void expectResult(TensorId tensor, Step step) {
    const auto slices = rooms_.plan.slicesOf(tensor);
    slicesLeft_[index(tensor)] = slices.size();
    if (rooms_.updatesWaitForWord) undecided_ = step;
    for (const Slice& slice : slices)
      slices_[index(slice.id)] = {.state = SliceState::kAwaited, .step = step};
  }
  void push(const Slice& slice, Step step);
  void contributeOwn(const Slice& slice, Step step, Own own);
  void takeOwn(const Slice& slice, Step step, Own own);
  void takeDecided();
  void pushNothing(const Slice& slice, Step step);
  Result<Landing> landNotice(const Slice& slice, Rank from, const wire::Header& header);
  Result<Landing> landResult(const Slice& slice, Rank from, fabric::Lane lane,
                             const wire::Header& header);
  Status expectFrom(const Slice& slice, Rank from, const wire::Header& header) const;
  void resultIsHere(const Slice& slice, Outcome outcome);
  void open(TensorId tensor, Step step, Outcome outcome);

  // The server's side.
  Result<Landing> landPush(const Slice& slice, Rank from, const wire::Header& header);
  Result<Landing> landPull(const Slice& slice, Rank from, const wire::Header& header);
  Result<Landing> landHyperparameters(Rank from, const wire::Header& header);
  void answerAll(const Slice& slice, Step step);
  void publish(const Slice& slice, Step step, Rank to);

  // Small messages without payload do not wait behind slices.
  void sendWord(const Slice& slice, Stage stage, Step step, Rank to, wire::Flags word);

  // Runs `then` once the payload is there; a payload that never comes fails the step.
  fabric::Done whenHere(std::function<void()> then) {
    return [this, then = std::move(then)](const Status& status) {
      if (!status.isOk()) return rooms_.gates.fail(status);
      then();
    };
  }
  bool publishesMean() const {
    return rooms_.update.optimizer->publishes() == optimizer::Publishes::kMeanGradient;
  }
  Status checkEveryServerTrains() const;
  Rank firstWorker() const { return rooms_.plan.roles().workers.front(); }
  DType dtypeOf(const Slice& slice) const { return rooms_.plan.model()[slice.tensor].dtype; }

  static Status expectNoPayload(const wire::Header& header) {
    return header.length == 0 ? base::ok()
                              : fabric::refusedStatus(header, "such a message has no payload");
  }

  const Rooms rooms_;
  const Rank self_;
  const Answer answer_;
  const bool overlaps_;
  const std::unique_ptr<shard::Shard> shard_;
  Outbox outbox_;
  std::map<std::pair<SliceId, Rank>, Step> notices_;  // results that these workers may pull, once
  std::vector<WorkerSlice> slices_;                   // by SliceId
  std::vector<size_t> slicesLeft_;                    // by TensorId: results that are not here yet
  // Without overlap, until all tensors are there.
  std::vector<HandedOver> toPush_;
  std::vector<std::pair<TensorId, Outcome>> toOpen_;
  uint32_t valuesSaid_ = 0;        // how often hyperparameters were set
  uint32_t valuesLanding_ = 0;     // messages with hyperparameters whose payload is not here yet
  std::set<fabric::Lane> putOff_;  // pushes of the first worker that wait for them
  std::optional<Step> undecided_;  // being handed over, or to be decided on
  std::set<std::pair<Rank, fabric::Lane>> early_;  // results for it that wait
  std::vector<Held> held_;     // in the order of backward: own parts that wait for decide()
  std::vector<Held> decided_;  // the same, once decided
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for what is posted
};

void ParameterServer::handedOver(const HandedOver& one) {
  toPush_.push_back(one);
  if (!overlaps_ && toPush_.size() < slicesLeft_.size()) return;
  for (const auto& [tensor, step, own] : std::exchange(toPush_, {})) {
    for (const Slice& slice : rooms_.plan.slicesOf(tensor)) {
      if (own == Own::kGradient) {
        push(slice, step);
      } else {
        pushNothing(slice, step);
      }
    }
  }
}

void ParameterServer::push(const Slice& slice, Step step) {
  if (slice.server == self_) return contributeOwn(slice, step, Own::kGradient);
  const auto gradient = partOf(rooms_.plan, rooms_.memory[index(slice.tensor)].gradient, slice);
  outbox_.post({.slice = slice,
                .stage = Stage::kPush,
                .step = step,
                .to = slice.server,
                .turn = plan::pushTurn(rooms_.plan, slice, self_),
                .payload = {gradient.data(), gradient.size()},
                .dtype = dtypeOf(slice),
                .owner = rooms_.memory[index(slice.tensor)].owner});
}

void ParameterServer::pushNothing(const Slice& slice, Step step) {
  if (slice.server == self_) return contributeOwn(slice, step, Own::kNothing);
  sendWord(slice, Stage::kPush, step, slice.server, kNoGradient);
}

// No slice is finished without the part of the worker beside its server. So an update that has to
// wait for the worker's word waits with that part, while all that has to travel is on its way.
void ParameterServer::contributeOwn(const Slice& slice, Step step, Own own) {
  if (rooms_.updatesWaitForWord) {
    held_.push_back({slice.id, step, own});
  } else {
    takeOwn(slice, step, own);
  }
}

void ParameterServer::takeOwn(const Slice& slice, Step step, Own own) {
  const auto isLast = [&]() -> Result<bool> {
    switch (own) {
      case Own::kGradient:
        return shard_->contribute(
            slice.id, self_, step,
            partOf(rooms_.plan, rooms_.memory[index(slice.tensor)].gradient, slice));
      case Own::kNothing: return shard_->contributeNothing(slice.id, self_, step);
      case Own::kVeto: break;
    }
    return shard_->contributeVeto(slice.id, self_, step);
  }();
  if (!isLast.isOk())
    return rooms_.gates.fail(isLast.status());  // handed over again after an error
  if (*isLast) answerAll(slice, step);
}

Status ParameterServer::decide(Decision decision) {
  SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
  if (!rooms_.updatesWaitForWord)
    return {Code::kInvalidArgument,
            "servers update by themselves here; open the session with updatesWaitForWord"};
  undecided_.reset();
  for (const auto& [from, lane] : std::exchange(early_, {})) rooms_.fabric.resume(from, lane);
  for (Held held : std::exchange(held_, {})) {
    if (decision == Decision::kDrop) held.own = Own::kVeto;
    decided_.push_back(held);
  }
  takeDecided();
  return base::ok();
}

// A few slices at a time, from what backward made last, which is what forward needs first: their
// results are on their way while the others are calculated.
void ParameterServer::takeDecided() {
  constexpr size_t kAtOnce = 8;
  for (size_t n = 0; n < kAtOnce && !decided_.empty(); ++n) {
    const Held held = decided_.back();
    decided_.pop_back();
    takeOwn(rooms_.plan.slice(held.slice), held.step, held.own);
  }
  if (decided_.empty()) return;
  rooms_.fabric.loop().post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) takeDecided();
  });
}

Result<Landing> ParameterServer::landPush(const Slice& slice, Rank from,
                                          const wire::Header& header) {
  if (has(header.flags, kNoGradient)) {
    SLUICE_RETURN_IF_ERROR(expectNoPayload(header));
    SLUICE_ASSIGN_OR_RETURN(const bool isLast,
                            shard_->contributeNothing(slice.id, from, header.step));
    return Landing{{}, whenHere([this, isLast, &slice, step = header.step] {
                     if (isLast) answerAll(slice, step);
                   })};
  }
  SLUICE_ASSIGN_OR_RETURN(const auto buffer,
                          shard_->landing(slice.id, from, header.step, header.length));
  return Landing{{buffer.data(), buffer.size()}, whenHere([this, &slice, from, step = header.step] {
                   if (shard_->arrived(slice.id, from)) answerAll(slice, step);
                 })};
}

void ParameterServer::answerAll(const Slice& slice, Step step) {
  for (const Rank worker : rooms_.plan.roles().workers) {
    if (answer_ == Answer::kNotifyAndPull && worker != self_) {
      notices_.insert_or_assign({slice.id, worker}, step);
      sendWord(slice, Stage::kPublish, step, worker, kNotify);
    } else {
      publish(slice, step, worker);
    }
  }
}

void ParameterServer::publish(const Slice& slice, Step step, Rank to) {
  if (shard_->isEmpty(slice.id)) {
    if (to == self_) return resultIsHere(slice, Outcome::kEmpty);
    return sendWord(slice, Stage::kPublish, step, to, kNoGradient);
  }
  const auto result = shard_->result(slice.id);
  if (to == self_) {
    // Not std::ranges::copy: that goes byte by byte in an optimised build.
    std::memcpy(partOf(rooms_.plan, rooms_.memory[index(slice.tensor)].result, slice).data(),
                result.data(), result.size());
    return resultIsHere(slice, Outcome::kResult);
  }
  outbox_.post({.slice = slice,
                .stage = Stage::kPublish,
                .step = step,
                .to = to,
                .turn = plan::publishTurn(rooms_.plan, slice, to),
                .payload = {result.data(), result.size()},
                .dtype = dtypeOf(slice)});
}

Result<Landing> ParameterServer::landNotice(const Slice& slice, Rank from,
                                            const wire::Header& header) {
  SLUICE_RETURN_IF_ERROR(expectFrom(slice, from, header));
  SLUICE_RETURN_IF_ERROR(expectNoPayload(header));
  WorkerSlice& here = slices_[index(slice.id)];
  if (std::exchange(here.isPulled, true))
    return fabric::refusedStatus(header, "the result is asked for already");
  return Landing{{}, whenHere([this, &slice, step = header.step] {
                   sendWord(slice, Stage::kPublish, step, slice.server, kPull);
                 })};
}

Result<Landing> ParameterServer::landPull(const Slice& slice, Rank from,
                                          const wire::Header& header) {
  // One answer for each notice: more would send results that are being replaced, as often as it is
  // asked.
  const auto notice = notices_.find({slice.id, from});
  if (notice == notices_.end() || notice->second != header.step)
    return fabric::refusedStatus(header, "nothing to pull here");
  SLUICE_RETURN_IF_ERROR(expectNoPayload(header));
  notices_.erase(notice);
  return Landing{
      {}, whenHere([this, &slice, from, step = header.step] { publish(slice, step, from); })};
}

Result<Landing> ParameterServer::landResult(const Slice& slice, Rank from, fabric::Lane lane,
                                            const wire::Header& header) {
  SLUICE_RETURN_IF_ERROR(expectFrom(slice, from, header));
  const bool isEmpty = has(header.flags, kNoGradient);
  // Another rank's worker was faster. Here no parameter may change yet.
  if (undecided_ == header.step && !isEmpty) {
    early_.emplace(from, lane);
    return Landing::later();
  }
  if (header.length != (isEmpty ? 0 : rooms_.plan.bytesOf(slice)))
    return fabric::refusedStatus(header, "not the slice's length");
  slices_[index(slice.id)].state = SliceState::kLanding;
  if (isEmpty)
    return Landing{{}, whenHere([this, &slice] { resultIsHere(slice, Outcome::kEmpty); })};
  const auto place = partOf(rooms_.plan, rooms_.memory[index(slice.tensor)].result, slice);
  return Landing{{place.data(), place.size()},
                 whenHere([this, &slice] { resultIsHere(slice, Outcome::kResult); })};
}

// A result is taken from the slice's server only, once, and for the step that this worker waits
// for.
Status ParameterServer::expectFrom(const Slice& slice, Rank from,
                                   const wire::Header& header) const {
  const WorkerSlice& here = slices_[index(slice.id)];
  if (from != slice.server) return fabric::refusedStatus(header, "not from the slice's server");
  if (here.state != SliceState::kAwaited || here.step != header.step)
    return fabric::refusedStatus(header, "not awaited");
  return base::ok();
}

void ParameterServer::resultIsHere(const Slice& slice, Outcome outcome) {
  WorkerSlice& here = slices_[index(slice.id)];
  here.state = SliceState::kIdle;
  if (rooms_.observer != nullptr) {
    rooms_.observer->onStage({Stage::kApplied, here.step, slice.tensor, slice.id, slice.server,
                              rooms_.fabric.loop().now()});
  }
  if (--slicesLeft_[index(slice.tensor)] > 0) return;
  // All slices of a tensor have the same outcome: a worker has its whole gradient, or none of it.
  toOpen_.emplace_back(slice.tensor, outcome);
  if (!overlaps_ && toOpen_.size() < slicesLeft_.size()) return;
  for (const auto& [tensor, its] : std::exchange(toOpen_, {})) open(tensor, here.step, its);
}

void ParameterServer::open(TensorId tensor, Step step, Outcome outcome) {
  if (outcome == Outcome::kEmpty) {
    rooms_.gates.openEmpty(tensor, step);
  } else {
    rooms_.gates.open(tensor, step);
  }
}

// A rank that only serves hears the hyperparameters from the first worker, in a message that no
// push of that worker can overtake: it goes ahead of them on both lanes that pushes take (a push
// without a gradient is a word). No slice can be finished without that worker's push, so none is
// finished with the wrong values. They are numbered, since the lanes may pass each other.
Status ParameterServer::setHyperparameters(const std::vector<double>& values, Step from) {
  SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
  const plan::Roles& roles = rooms_.plan.roles();
  if (!roles.isWorker(self_)) return base::ok();
  SLUICE_RETURN_IF_ERROR(shard_->setHyperparameters(values, from));
  if (self_ != firstWorker()) return base::ok();
  const auto payload = std::make_shared<const std::vector<double>>(values);
  const fabric::Message message{
      .step = from, .slice = SliceId{++valuesSaid_}, .stage = Stage::kUpdate, .dtype = DType::kF64};
  for (const Rank server : roles.servers) {
    if (roles.isWorker(server)) continue;
    for (const auto lane : {fabric::Lane::kControl, fabric::Lane::kBulk}) {
      const auto bytes = std::as_bytes(std::span(*payload));
      rooms_.fabric.send(server, lane, message, {bytes.data(), bytes.size()},
                         whenHere([payload] { /* stays alive until now */ }));
    }
  }
  return base::ok();
}

Result<Landing> ParameterServer::landHyperparameters(Rank from, const wire::Header& header) {
  const size_t count = rooms_.update.values.size();
  if (from != firstWorker())
    return fabric::refusedStatus(header, "hyperparameters come from the first worker");
  if (rooms_.plan.roles().isWorker(self_))
    return fabric::refusedStatus(header, "this rank has its own hyperparameters");
  if (header.dtype != DType::kF64 || header.length != count * sizeof(double))
    return fabric::refusedStatus(header, "not the hyperparameters of this optimizer");
  auto values = std::make_shared<std::vector<double>>(count);
  const auto place = std::as_writable_bytes(std::span(*values));
  ++valuesLanding_;
  return Landing{
      {place.data(), place.size()},
      [this, values, step = header.step, number = index(header.slice)](const Status& status) {
        --valuesLanding_;
        if (!status.isOk()) return rooms_.gates.fail(status);
        if (number > valuesSaid_) {
          valuesSaid_ = number;
          const Status taken = shard_->setHyperparameters(*values, step);
          if (!taken.isOk()) return rooms_.refuse(firstWorker(), taken);
        }
        for (const auto lane : std::exchange(putOff_, {}))
          rooms_.fabric.resume(firstWorker(), lane);
      }};
}

// A rank that only serves is told nothing of a checkpoint, and does not know between which steps it
// is.
Status ParameterServer::checkEveryServerTrains() const {
  if (rooms_.plan.roles().workers.size() == rooms_.plan.roles().world) return base::ok();
  return {
      Code::kInvalidArgument,
      "the optimizer's state is on ranks that only serve, and cannot be saved; use servers=all"};
}

// Every gate is open: each of this rank's own parts has been used, and no slice is finished without
// it. So the states are those of the last step, whatever parts of the next have come from others,
// and the loop does not touch them.
Result<std::vector<std::byte>> ParameterServer::takeState() {
  if (publishesMean()) return Strategy::takeState();
  SLUICE_RETURN_IF_ERROR(checkEveryServerTrains());
  return shard::toBytes(shard_->states());
}

Status ParameterServer::restore(std::span<const std::byte> state) {
  if (publishesMean()) return Strategy::restore(state);
  SLUICE_RETURN_IF_ERROR(checkEveryServerTrains());
  std::vector<shard::ServedState> states;
  if (!state.empty()) {
    SLUICE_ASSIGN_OR_RETURN(states, shard::servedStatesFromBytes(state));
  }
  if (const Status fits = shard_->restore(std::move(states)); !fits.isOk())
    return fits.withContext("the saved state does not fit");
  // The caller has put back the parameters too. On the loop, which may still be sending the last
  // results.
  const auto& mine = rooms_.plan.slicesOn(self_);
  return inPieces(rooms_.fabric.loop(), mine.size(), [&](size_t i) {
    const Slice& slice = rooms_.plan.slice(mine[i]);
    const auto part = partOf(rooms_.plan, rooms_.memory[index(slice.tensor)].result, slice);
    shard_->setParameters(slice.id, part);
    return part.size();
  });
}

void ParameterServer::sendWord(const Slice& slice, Stage stage, Step step, Rank to,
                               wire::Flags word) {
  const fabric::Message message{.step = step,
                                .tensor = slice.tensor,
                                .slice = slice.id,
                                .stage = stage,
                                .flags = word,
                                .dtype = dtypeOf(slice)};
  rooms_.fabric.send(to, fabric::Lane::kControl, message, {}, whenHere([] {}));
}

std::string ParameterServer::describeWait(TensorId tensor) const {
  std::string collecting;
  for (const Slice& slice : rooms_.plan.slicesOf(tensor)) {
    if (slice.server != self_) continue;
    for (const Rank rank : shard_->missing(slice.id)) {
      collecting +=
          fmt::format("{}slice {} lacks rank {}", collecting.empty() ? "" : ", ", slice.id, rank);
    }
  }
  std::string text =
      describeMissing(rooms_.plan, tensor, slicesLeft_[index(tensor)],
                      [this](SliceId id) { return slices_[index(id)].state != SliceState::kIdle; });
  if (!collecting.empty()) text += fmt::format("; served here: {}", collecting);
  return text;
}

}  // namespace

Result<std::unique_ptr<Strategy>> makeParameterServer(const Rooms& rooms,
                                                      const ServerStyle& style) {
  if (rooms.collective != nullptr) {
    return Status(Code::kInvalidArgument,
                  "this algorithm has servers and no use for a process group; use "
                  "algorithm=allreduce, wfbp, mgwfbp or pipe");
  }
  SLUICE_ASSIGN_OR_RETURN(auto shard,
                          shard::Shard::make(rooms.plan, rooms.fabric.rank(), rooms.update,
                                             rooms.fabric.loop().clock(), rooms.observer));
  if (rooms.update.optimizer->publishes() == optimizer::Publishes::kParameters) {
    setServed(*shard, rooms.plan, rooms.fabric.rank(),
              [&](TensorId id) { return rooms.parameters[index(id)]; });
  }
  return std::unique_ptr<Strategy>(
      std::make_unique<ParameterServer>(rooms, style, std::move(shard)));
}

}  // namespace sluice::strategy
