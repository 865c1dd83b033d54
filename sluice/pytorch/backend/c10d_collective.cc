#include <sluice/pytorch/backend/c10d_collective.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::pytorch {
namespace {

using collective::Call;
using collective::Done;
using collective::ElementRange;
using collective::Ticket;

at::ScalarType scalarType(DType dtype) {
  switch (dtype) {
    case DType::kF32: return at::kFloat;
    case DType::kF64: return at::kDouble;
    case DType::kBF16: return at::kBFloat16;
    case DType::kF16: return at::kHalf;
    case DType::kBytes: break;
  }
  return at::kByte;
}

at::Tensor copyOf(std::span<std::byte> place, DType dtype) {
  auto copy = at::empty({static_cast<int64_t>(place.size() / sizeOf(dtype))}, scalarType(dtype));
  if (!place.empty()) std::memcpy(copy.data_ptr(), place.data(), place.size());
  return copy;
}

}  // namespace

C10dCollective::C10dCollective(Loop& loop, GroupPtr group)
    : loop_(loop),
      group_(std::move(group)),
      self_(std::make_shared<base::Guarded<C10dCollective*>>(this)) {}

C10dCollective::~C10dCollective() {
  detach();
}

void C10dCollective::detach() {
  if (std::exchange(isDetached_, true)) return;
  // self_ is cleared on the loop, so behind whatever runs there. From then on no callback finds
  // this object.
  fabric::runBeforeFreeing(loop_, [this] { self_->with([](auto*& self) { self = nullptr; }); });
}

Status C10dCollective::launch(
    Piece& piece,
    const std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>&)>& call) {
  // Process groups report errors by exceptions, which must not leave this call: the loop would
  // end with them.
  try {
    std::vector<at::Tensor> tensors{piece.tensor};
    piece.work = call(tensors);
    return base::ok();
  } catch (const std::exception& error) {
    return {Code::kUnavailable, fmt::format("the process group refuses: {}", error.what())};
  }
}

void C10dCollective::allReduce(const Call& call, const collective::ReductionOptions& reduction,
                               Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (!error_.isOk()) return done(error_);
  if (reduction.codec != nullptr) {
    return done(
        {Code::kInvalidArgument,
         fmt::format(
             "a process group cannot use codec {} inside its reduction; leave out the codec, or "
             "process_group",
             reduction.codec->name())});
  }
  // The group works on memory of its own. Its threads may still write there after this engine
  // has given up a call, and by then the caller's memory may be gone.
  std::vector<Piece> pieces{{call.data, copyOf(call.data, call.dtype), nullptr}};
  {
    const at::AutoDispatchBelowADInplaceOrView noGradients;
    if (reduction.scale != 1) pieces[0].tensor.mul_(reduction.scale);
  }
  const Status status =
      launch(pieces[0], [&](auto& tensors) { return group_->allreduce(tensors); });
  if (!status.isOk()) return done(status);
  follow(call.ticket, std::move(pieces), std::move(done));
}

void C10dCollective::allGather(const Call& call, Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (!error_.isOk()) return done(error_);
  const auto world = static_cast<uint32_t>(group_->getSize());
  const size_t size = sizeOf(call.dtype);
  std::vector<Piece> pieces;
  for (uint32_t r = 0; r < world; ++r) {  // parts differ in size, so each is its owner's broadcast
    const ElementRange part = collective::partOf(Rank{r}, world, call.data.size() / size);
    const auto place = call.data.subspan(part.first * size, part.count * size);
    Piece& piece = pieces.emplace_back(Piece{place, copyOf(place, DType::kBytes), nullptr});
    c10d::BroadcastOptions options;
    options.rootRank = r;
    const Status status =
        launch(piece, [&](auto& tensors) { return group_->broadcast(tensors, options); });
    if (!status.isOk()) return done(status);
  }
  follow(call.ticket, std::move(pieces), std::move(done));
}

void C10dCollective::broadcast(const Call& call, Rank root, Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (!error_.isOk()) return done(error_);
  std::vector<Piece> pieces{{call.data, copyOf(call.data, DType::kBytes), nullptr}};
  c10d::BroadcastOptions options;
  options.rootRank = index(root);
  const Status status =
      launch(pieces[0], [&](auto& tensors) { return group_->broadcast(tensors, options); });
  if (!status.isOk()) return done(status);
  follow(call.ticket, std::move(pieces), std::move(done));
}

void C10dCollective::follow(const Ticket& ticket, std::vector<Piece> pieces, Done done) {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const Piece& piece : pieces) works.push_back(piece.work);
  const bool isNew =
      underway_.emplace(ticket, Underway{std::move(pieces), works.size(), std::move(done)}).second;
  SLUICE_CHECK(isNew, ticket.step, ticket.number);
  // A callback runs on a thread of the group, at any time, even when this engine is gone. It
  // touches only self_, under its lock, and posts to the loop; on the loop self_ is asked
  // again, since the engine may have been detached in between.
  for (const auto& work : works) {
    work->getFuture()->addCallback([self = self_, ticket](c10::ivalue::Future& future) {
      const Status status = future.hasError()
                                ? Status(Code::kUnavailable, "the process group failed: " +
                                                                 future.tryRetrieveErrorMessage())
                                : base::ok();
      self->with([&](C10dCollective* here) {
        if (here == nullptr) return;
        here->loop_.post([self, ticket, status] {
          auto* still = self->with([](C10dCollective* each) { return each; });
          if (still != nullptr)
            still->ended(ticket, status);  // it detaches on this loop, so not meanwhile
        });
      });
    });
  }
}

void C10dCollective::ended(const Ticket& ticket, const Status& status) {
  const auto found = underway_.find(ticket);
  if (found == underway_.end()) return;
  // With an error the call ends at once. The answers of its other parts find no ticket any
  // more.
  if (--found->second.left > 0 && status.isOk()) return;
  const Underway call = std::move(underway_.extract(found).mapped());
  for (const Piece& piece : call.pieces) {
    if (status.isOk() && !piece.place.empty())
      std::memcpy(piece.place.data(), piece.tensor.data_ptr(), piece.place.size());
  }
  call.done(status);
  // The other ranks may be in this collective or past it, so nobody could say what a next call
  // would meet.
  if (!status.isOk()) fail(status);
}

void C10dCollective::fail(const Status& why) {
  if (!error_.isOk()) return;
  error_ = why;
  for (auto& [ticket, call] : std::exchange(underway_, {})) call.done(why);
}

std::string C10dCollective::describeWait(const Ticket& ticket) const {
  return underway_.contains(ticket) ? "the process group has not ended its collective" : "";
}

}  // namespace sluice::pytorch
