// The beginning of an epoch: members tell each other which results they have, and hand over those
// that others lack (elastic_strategy.h).
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/elastic/elastic_strategy.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {

using fabric::Landing;
using plan::Slice;

Status ElasticStrategy::enter(const plan::Plan& plan, fabric::Fabric& fabric) {
  SLUICE_DCHECK(phase_ != Phase::kTraining);
  SLUICE_DCHECK(plan.slices().size() == kept_.sliceCount());
  inner_.reset();
  innerGates_.reset();
  // The fabric of the last epoch is gone, so what was landing will not end, and half of its
  // bytes may be missing.
  kept_.abandonLandings();
  deferred_ = {};
  plan_ = &plan;
  fabric_ = &fabric;
  phase_ = Phase::kExchanging;
  for (OneTensor& tensor : tensors_) {
    tensor.isInside = false;
    tensor.aside.clear();
  }
  agreed_.clear();
  reporting_.clear();
  awaited_ = 0;
  // Every member gets every report and draws the conclusions itself. The rules give all of them
  // the same, and there is nobody in the middle who could be lost as well.
  reports_.assign(fabric.worldSize(), {});
  ResultReport& own = reports_[index(fabric.rank())];
  for (const Slice& slice : plan.slices()) own.push_back(kept_.last(slice.id));
  SLUICE_ASSIGN_OR_RETURN(auto bytes, toBytes(own, plan.epoch()));
  const auto payload = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  for (uint32_t rank = 0; rank < fabric.worldSize(); ++rank) {
    if (Rank{rank} == fabric.rank()) continue;
    fabric.send(Rank{rank}, fabric::Lane::kBulk,
                {.stage = Stage::kReady, .flags = elastic::kReport},
                {payload->data(), payload->size()},
                [payload](const Status&) { /* stays alive until now */ });
  }
  agreeIfComplete();
  return base::ok();
}

Result<Landing> ElasticStrategy::onMessage(Rank from, fabric::Lane lane,
                                           const wire::Header& header) {
  if (header.stage == Stage::kReady) {
    if (phase_ != Phase::kExchanging) return fabric::refusedStatus(header, "no epoch begins here");
    if (has(header.flags, elastic::kReport)) return landReport(from, header);
    // The sender has all reports while this member still lacks some, and cannot judge yet what
    // it is handed.
    if (agreed_.empty()) return deferred_.defer(from, lane);
    return landHandedOver(from, header);
  }
  // The sender trains already. Its parts wait with it until this member does, too.
  if (phase_ == Phase::kExchanging) return deferred_.defer(from, lane);
  return inner_->onMessage(from, lane, header);
}

Result<Landing> ElasticStrategy::landReport(Rank from, const wire::Header& header) {
  if (header.length != reportBytes(kept_.sliceCount()))
    return fabric::refusedStatus(header, "not the length of a report");
  if (!reports_[index(from)].empty() || !reporting_.insert(from).second)
    return fabric::refusedStatus(header, "the member has reported already");
  const auto bytes = std::make_shared<std::vector<std::byte>>(header.length);
  return Landing{{bytes->data(), bytes->size()}, [this, from, bytes](const Status& status) {
                   reporting_.erase(from);
                   if (status.isOk()) takeReport(from, *bytes);
                 }};
}

void ElasticStrategy::takeReport(Rank from, std::span<const std::byte> bytes) {
  auto report = reportFromBytes(bytes, kept_.sliceCount(), plan_->epoch());
  if (!report.isOk()) return outer_.refuse(from, report.status());
  reports_[index(from)] = *std::move(report);
  agreeIfComplete();
}

void ElasticStrategy::agreeIfComplete() {
  const auto isHere = [](const ResultReport& report) { return !report.empty(); };
  if (!std::ranges::all_of(reports_, isHere)) return;
  auto agreed = agreeOn(reports_);
  if (!agreed.isOk()) return outer_.gates.fail(agreed.status());
  agreed_ = *std::move(agreed);
  for (const Slice& slice : plan_->slices()) {
    if (const Status taken = beginSlice(slice); !taken.isOk()) return outer_.gates.fail(taken);
  }
  deferred_.resume(*fabric_);
  resumeIfComplete();
}

// Hands the slice's result to those that lack it, or makes ready for it.
Status ElasticStrategy::beginSlice(const Slice& slice) {
  const AgreedResult& agreed = agreed_[index(slice.id)];
  // Of all that have the result one hands it over, so that it comes once to each that lacks it.
  if (agreed.holder == fabric_->rank() && !agreed.result.isEmpty) {
    for (uint32_t rank = 0; rank < reports_.size(); ++rank) {
      if (reports_[rank][index(slice.id)].steps < agreed.result.steps) handOver(slice, Rank{rank});
    }
  }
  if (kept_.last(slice.id).steps == agreed.result.steps) return base::ok();
  // A result exists only if every member of its epoch has contributed, and this one was a
  // member. A rank that says otherwise is at fault.
  const Step step{agreed.result.steps - 1};
  if (tensors_[index(slice.tensor)].step != step || !hasCome_[index(slice.id)]) {
    return {Code::kInternal,
            fmt::format("rank {} has a result of step {} of '{}', to which this rank has not "
                        "contributed",
                        index(agreed.holder), index(step), plan_->model()[slice.tensor].name)};
  }
  if (agreed.result.isEmpty) {
    kept_.storeEmpty(slice.id, agreed.result.made);
  } else {
    ++awaited_;
  }
  return base::ok();
}

void ElasticStrategy::handOver(const Slice& slice, Rank to) {
  // The bytes stay as they are until the slice's next result, and for that one the receiver has
  // to contribute first.
  const auto bytes = kept_.bytes(slice.id);
  fabric_->send(to, fabric::Lane::kBulk,
                {.step = Step{kept_.last(slice.id).steps - 1},
                 .tensor = slice.tensor,
                 .slice = slice.id,
                 .stage = Stage::kReady,
                 .flags = elastic::kHandedOver,
                 .dtype = plan_->model()[slice.tensor].dtype},
                {bytes.data(), bytes.size()}, [](const Status&) {});
}

Result<Landing> ElasticStrategy::landHandedOver(Rank from, const wire::Header& header) {
  SLUICE_RETURN_IF_ERROR(checkSliceAndType(*plan_, header));
  const Slice& slice = plan_->slice(header.slice);
  const AgreedResult& agreed = agreed_[index(slice.id)];
  const bool isAwaited = kept_.last(slice.id).steps < agreed.result.steps &&
                         agreed.holder == from && header.step == Step{agreed.result.steps - 1} &&
                         !kept_.isLanding(slice.id);
  if (!isAwaited) return fabric::refusedStatus(header, "not awaited");
  if (header.length != plan_->bytesOf(slice))
    return fabric::refusedStatus(header, "not the slice's length");
  const auto place = kept_.landing(slice.id);
  return Landing{{place.data(), place.size()}, [this, &slice](const Status& status) {
                   if (status.isOk()) takeHandedOver(slice);
                 }};
}

void ElasticStrategy::takeHandedOver(const Slice& slice) {
  const AgreedResult& agreed = agreed_[index(slice.id)];
  moveToPlace(slice, kept_.landed(slice.id, agreed.result.made));
  tellSink(slice, Step{agreed.result.steps - 1}, agreed.holder);
  --awaited_;
  resumeIfComplete();
}

void ElasticStrategy::resumeIfComplete() {
  if (phase_ != Phase::kExchanging || agreed_.empty() || awaited_ > 0) return;
  if (const Status made = makeInner(); !made.isOk()) return outer_.gates.fail(made);
  phase_ = Phase::kTraining;
  // What came too early during the exchange is now for the new inner strategy.
  deferred_.resume(*fabric_);
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    // Some tensors are done by what was handed over. The others go on inside.
    openIfDone(TensorId{t});
    handOn(TensorId{t});
  }
}

std::string ElasticStrategy::describeExchange() const {
  std::string missing;
  for (uint32_t rank = 0; rank < reports_.size(); ++rank) {
    if (!reports_[rank].empty()) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
  }
  if (!missing.empty())
    return fmt::format("a new epoch begins, and reports are missing of ranks {}", missing);
  return fmt::format("a new epoch begins, and other members hand over {} results", awaited_);
}

}  // namespace sluice::algorithms
