#include <sluice/data/collective/fabric_collective.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::collective {
namespace {

// A message is large enough to cost little, and small enough that summing it takes much less time
// than sending all.
constexpr uint64_t kMessageBytes = uint64_t{128} << 10;
constexpr uint32_t kMostStrips = 1024;
constexpr uint64_t kStepsRemembered = 2;

uint32_t stripsFor(size_t bytes, uint32_t world) {
  const uint64_t strips = bytes / (kMessageBytes * world);
  return static_cast<uint32_t>(std::clamp<uint64_t>(strips, 1, kMostStrips));
}

}  // namespace

ElementRange partOf(Rank rank, uint32_t world, uint64_t elements) {
  return pieceOf(elements, world, index(rank));
}

void FabricCollective::allReduce(const Call& call, const ReductionOptions& reduction, Done done) {
  begin(call, reduction, allReduceSchedule(call.method, fabric_.rank(), world()),
        PieceLayout::Order::kStripsOfParts, std::move(done));
}

void FabricCollective::reduceScatter(const Call& call, const ReductionOptions& reduction,
                                     Done done) {
  begin(call, reduction, reduceScatterSchedule(call.method, fabric_.rank(), world()),
        PieceLayout::Order::kPartsOfStrips, std::move(done));
}

void FabricCollective::allGather(const Call& call, Done done) {
  begin(call, {}, allGatherSchedule(call.method, fabric_.rank(), world()),
        PieceLayout::Order::kPartsOfStrips, std::move(done));
}

void FabricCollective::broadcast(const Call& call, Rank root, Done done) {
  if (index(root) >= world()) {
    return done(
        {Code::kInvalidArgument, fmt::format("there is no rank {} among {} ranks", root, world())});
  }
  begin(call, {}, broadcastSchedule(root, fabric_.rank(), world()),
        PieceLayout::Order::kStripsOfParts, std::move(done));
}

void FabricCollective::begin(const Call& call, const ReductionOptions& reduction, Schedule schedule,
                             PieceLayout::Order order, Done done) {
  SLUICE_DCHECK(fabric_.loop().inLoop());
  if (!error_.isOk()) return done(error_);
  if (reduction.codec != nullptr && call.dtype != DType::kF32) {
    return done(
        {Code::kInvalidArgument, fmt::format("codec {} takes f32, not {}", reduction.codec->name(),
                                             sluice::name(call.dtype))});
  }
  // Sums need a type that can be added up, but moving data does not: a broadcast of integers is
  // fine. A scale alone is arithmetic too.
  const auto sums = [](const ScheduleRound& round) {
    return round.arriving == Arriving::kContributions && !round.receives.empty();
  };
  const bool isReduction = reduction.scale != 1 || std::ranges::any_of(schedule, sums);
  if (isReduction) {
    if (Status status = kernel::checkArithmetic(call.dtype); !status.isOk()) return done(status);
  }
  // A schedule that sums all ranks' parts at once scales them in the sum, as servers do. If sums
  // are passed on, each rank scales its own part before.
  ReductionOptions inside = reduction;
  const bool sumsAtOnce =
      call.method == Method::kDirect ||
      (call.method == Method::kHalvingDoubling && order == PieceLayout::Order::kPartsOfStrips);
  if (isReduction && reduction.scale != 1 && (!sumsAtOnce || world() == 1)) {
    std::vector<std::byte> scaled(call.data.size() / sizeOf(call.dtype) *
                                  sizeOf(kernel::accumulatorOf(call.dtype)));
    kernel::setScaled(call.dtype, scaled, call.data, reduction.scale);
    kernel::narrow(call.dtype, call.data, scaled);
    inside.scale = 1;
  }
  const PieceLayout layout(order, world(), call.data.size() / sizeOf(call.dtype),
                           call.strips > 0 ? call.strips : stripsFor(call.data.size(), world()));
  const auto operation =
      std::make_shared<Operation>(fabric_, call, inside, std::move(schedule), layout,
                                  [this, ticket = call.ticket, done = std::move(done)](
                                      const Status& status) { ended(ticket, status, done); });
  const bool isNew = underway_.emplace(call.ticket, operation).second;
  SLUICE_CHECK(isNew, call.ticket.step, call.ticket.number);
  // The operation is on the list before it starts: it may end at once, and what was put off may
  // be for it.
  operation->start();
  deferred_.resume(fabric_);
}

void FabricCollective::ended(const Ticket& ticket, const Status& status, const Done& done) {
  underway_.erase(ticket);
  recent_.insert(ticket);
  // Ended calls are remembered for a few steps only, or the set would grow with training. A
  // message for one of them is a mistake of its sender, and would otherwise wait here for a
  // call that never comes.
  while (index(recent_.begin()->step) + kStepsRemembered < index(ticket.step))
    recent_.erase(recent_.begin());
  if (!status.isOk() && error_.isOk()) fail(status);  // this rank's part of it will never be there
  done(status);
}

Result<fabric::Landing> FabricCollective::onMessage(Rank from, fabric::Lane lane,
                                                    const wire::Header& header) {
  SLUICE_DCHECK(fabric_.loop().inLoop());
  if (!error_.isOk()) return error_;
  const Ticket ticket{header.step, header.tensor};
  if (const auto found = underway_.find(ticket); found != underway_.end())
    return found->second->land(from, header);
  if (recent_.contains(ticket)) return fabric::refusedStatus(header, "it has ended");
  if (willCall_ && !willCall_(ticket))
    return fabric::refusedStatus(header, "no such call is made here");
  return deferred_.defer(from, lane);
}

void FabricCollective::fail(const Status& why) {
  if (!error_.isOk()) return;
  error_ = why;
  // Ending an operation takes it off the list, and its completion may end others, so the list
  // is asked anew each time.
  while (!underway_.empty()) {
    const auto operation = underway_.begin()->second;
    operation->end(why);
  }
  deferred_.resume(fabric_);
}

std::string FabricCollective::describeWait(const Ticket& ticket) const {
  const auto found = underway_.find(ticket);
  return found == underway_.end() ? "" : found->second->describeWait();
}

std::set<Rank> FabricCollective::missing(const Ticket& ticket) const {
  const auto found = underway_.find(ticket);
  return found == underway_.end() ? std::set<Rank>{} : found->second->missing();
}

}  // namespace sluice::collective
