#include <sluice/algorithms/server/collecting_server.h>

#include <cstring>

#include <fmt/format.h>

#include <sluice/algorithms/slices.h>
#include <sluice/algorithms/words.h>
#include <sluice/data/plan/order.h>

namespace sluice::algorithms {

using fabric::Landing;
using plan::Slice;

Result<Landing> CollectingServer::landPush(const Slice& slice, Rank from, fabric::Lane lane,
                                           const wire::Header& header) {
  if (from == firstWorker() && valuesLanding_ > 0) return deferred_.defer(from, lane);
  // A part without a gradient still counts: the sum of a slice is complete only when every
  // worker has said something. The shard judges step and sender before the payload comes, and
  // its refusal leaves the slice as it was.
  if (has(header.flags, collecting::kNoGradient)) {
    SLUICE_RETURN_IF_ERROR(CollectingParts::expectNoPayload(header));
    SLUICE_ASSIGN_OR_RETURN(const bool isLast,
                            shard_->contributeNothing(slice.id, from, header.step));
    return Landing{{}, parts_.whenHere([this, isLast, &slice, step = header.step] {
                     if (isLast) finish(slice, step);
                   })};
  }
  SLUICE_ASSIGN_OR_RETURN(const auto buffer,
                          shard_->landing(slice.id, from, header.step, header.length));
  return Landing{{buffer.data(), buffer.size()},
                 parts_.whenHere([this, &slice, from, step = header.step] {
                   if (shard_->arrived(slice.id, from)) finish(slice, step);
                 })};
}

void CollectingServer::takeOwn(const Slice& slice, Step step, OwnPart part) {
  const Rank self = parts_.self;
  const auto isLast = [&]() -> Result<bool> {
    switch (part) {
      case OwnPart::kGradient:
        return shard_->contribute(
            slice.id, self, step,
            partOf(parts_.plan(), parts_.context.memory[index(slice.tensor)].gradient, slice));
      case OwnPart::kNothing: return shard_->contributeNothing(slice.id, self, step);
      case OwnPart::kVeto: break;
    }
    return shard_->contributeVeto(slice.id, self, step);
  }();
  // A gradient may be handed over again after an error.
  if (!isLast.isOk()) return parts_.context.gates.fail(isLast.status());
  if (*isLast) finish(slice, step);
}

// Answers a slice that is updated, when its time on the update line is over.
void CollectingServer::finish(const Slice& slice, Step step) {
  const uint64_t bytes = shard_->isEmpty(slice.id) ? 0 : parts_.plan().bytesOf(slice);
  updates_.add(slice, step, bytes, [this, &slice, step] { answerAll(slice, step); });
}

void CollectingServer::answerAll(const Slice& slice, Step step) {
  for (const Rank worker : parts_.roles().workers) {
    if (parts_.style.answer != Answer::kBroadcast && worker != parts_.self) {
      notices_.insert_or_assign({slice.id, worker}, step);
      parts_.sendWord(slice, Stage::kPublish, step, worker, collecting::kNotify);
    } else {
      publish(slice, step, worker);
    }
  }
}

void CollectingServer::publish(const Slice& slice, Step step, Rank to) {
  if (shard_->isEmpty(slice.id)) {
    if (to == parts_.self) return onOwnResult_(slice, /*isEmpty=*/true);
    return parts_.sendWord(slice, Stage::kPublish, step, to, collecting::kNoGradient);
  }
  const auto result = shard_->result(slice.id);
  if (to == parts_.self) {
    // memcpy, because std::ranges::copy goes byte by byte in an optimised build.
    std::memcpy(parts_.context.placeOf(slice, step).data(), result.data(), result.size());
    return onOwnResult_(slice, /*isEmpty=*/false);
  }
  parts_.outbox.post({.slice = slice,
                      .stage = Stage::kPublish,
                      .step = step,
                      .to = to,
                      .turn = plan::publishTurn(parts_.plan(), slice, to),
                      .payload = {result.data(), result.size()},
                      .dtype = parts_.dtypeOf(slice)});
}

Result<Landing> CollectingServer::landPull(const Slice& slice, Rank from,
                                           const wire::Header& header) {
  // One answer for each notice: more would send results that are being replaced, as often as a
  // worker asks.
  const auto notice = notices_.find({slice.id, from});
  if (notice == notices_.end() || notice->second != header.step)
    return fabric::refusedStatus(header, "nothing to pull here");
  SLUICE_RETURN_IF_ERROR(CollectingParts::expectNoPayload(header));
  notices_.erase(notice);
  return Landing{{}, parts_.whenHere([this, &slice, from, step = header.step] {
                   publish(slice, step, from);
                 })};
}

Status CollectingServer::setHyperparameters(const std::vector<double>& values, Step from) {
  const plan::Roles& roles = parts_.roles();
  if (!roles.isWorker(parts_.self)) return base::ok();
  SLUICE_RETURN_IF_ERROR(shard_->setHyperparameters(values, from));
  if (parts_.self != firstWorker()) return base::ok();
  const auto payload = std::make_shared<const std::vector<double>>(values);
  const fabric::Message message{
      .step = from, .slice = SliceId{++valuesSaid_}, .stage = Stage::kUpdate, .dtype = DType::kF64};
  for (const Rank server : roles.servers) {
    if (roles.isWorker(server)) continue;
    for (const auto lane : {fabric::Lane::kControl, fabric::Lane::kBulk}) {
      const auto bytes = std::as_bytes(std::span(*payload));
      parts_.context.fabric.send(server, lane, message, {bytes.data(), bytes.size()},
                                 parts_.whenHere([payload] { /* stays alive until now */ }));
    }
  }
  return base::ok();
}

Result<Landing> CollectingServer::landHyperparameters(Rank from, const wire::Header& header) {
  const size_t count = parts_.context.update.values.size();
  if (from != firstWorker())
    return fabric::refusedStatus(header, "hyperparameters come from the first worker");
  if (parts_.roles().isWorker(parts_.self))
    return fabric::refusedStatus(header, "this rank has its own hyperparameters");
  if (header.dtype != DType::kF64 || header.length != count * sizeof(double))
    return fabric::refusedStatus(header, "not the hyperparameters of this optimizer");
  auto values = std::make_shared<std::vector<double>>(count);
  const auto buffer = std::as_writable_bytes(std::span(*values));
  ++valuesLanding_;
  return Landing{
      {buffer.data(), buffer.size()},
      [this, values, step = header.step, number = index(header.slice)](const Status& status) {
        --valuesLanding_;
        if (!status.isOk()) return parts_.context.gates.fail(status);
        // These values come on two lanes, which may pass each other: only the newer number is set,
        // so that old values on a slow lane never replace new ones.
        if (number > valuesSaid_) {
          valuesSaid_ = number;
          const Status taken = shard_->setHyperparameters(*values, step);
          if (!taken.isOk()) return parts_.context.refuse(firstWorker(), taken);
        }
        deferred_.resume(parts_.context.fabric);
      }};
}

std::string CollectingServer::describeWait(TensorId tensor) const {
  std::string text;
  for (const Slice& slice : parts_.plan().slicesOf(tensor)) {
    if (slice.server != parts_.self) continue;
    for (const Rank rank : shard_->missing(slice.id)) {
      text += fmt::format("{}slice {} lacks rank {}", text.empty() ? "" : ", ", slice.id, rank);
    }
  }
  return text;
}

}  // namespace sluice::algorithms
