#include <sluice/pytorch/foreign_collective.h>

#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/status.h>
#include <sluice/pytorch/table_status.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::pytorch {
namespace {

using collective::Call;
using collective::Done;
using collective::ElementRange;
using collective::Ticket;

table::Memory memoryOf(std::span<std::byte> bytes) {
  return {bytes.data(), bytes.size()};
}

}  // namespace

ForeignCollective::ForeignCollective(Loop& loop, const table::ProcessGroup& group)
    : loop_(loop),
      group_(group),
      self_(std::make_shared<base::Guarded<ForeignCollective*>>(this)) {}

ForeignCollective::~ForeignCollective() {
  // self_ is cleared on the loop, so behind whatever runs there. From then on no callback finds
  // this object.
  fabric::runBeforeFreeing(loop_, [this] { self_->with([](auto*& self) { self = nullptr; }); });
}

template <typename Launch>
Result<ForeignCollective::Piece> ForeignCollective::begin(const Ticket& ticket,
                                                          std::span<std::byte> place,
                                                          Launch&& launch) {
  // `ended` runs on a thread of the group, at any time, even when this engine is gone. It touches
  // only self_, under its lock, and posts to the loop; on the loop self_ is asked again, since the
  // engine may have been destroyed in between.
  const auto ended = table::giveEnded([self = self_, ticket](const Status& status) {
    self->with([&](ForeignCollective* here) {
      if (here == nullptr) return;
      here->loop_.post([self, ticket, status] {
        auto* still = self->with([](ForeignCollective* each) { return each; });
        if (still != nullptr)
          still->ended(ticket, status);  // its end waits for this loop, so it stays meanwhile
      });
    });
  });
  table::GroupCall piece{};
  table::Error error;
  launch(memoryOf(place), ended, &piece, &error);
  if (error.code != 0) {
    return Status(Code::kUnavailable,
                  fmt::format("the process group refuses: {}", table::statusOf(error).message()));
  }
  return Piece{place, piece.piece, table::take(piece.owner)};
}

void ForeignCollective::allReduce(const Call& call, const collective::ReductionOptions& reduction,
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
  auto piece = begin(call.ticket, call.data, [&](auto data, auto ended, auto* out, auto* error) {
    group_.allReduce(group_.group, data, static_cast<int32_t>(call.dtype), reduction.scale, ended,
                     out, error);
  });
  if (!piece.isOk()) return done(piece.status());
  follow(call.ticket, {*std::move(piece)}, std::move(done));
}

void ForeignCollective::allGather(const Call& call, Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (!error_.isOk()) return done(error_);
  const size_t size = sizeOf(call.dtype);
  std::vector<Piece> pieces;
  // Parts differ in size, so each is its owner's broadcast.
  for (uint32_t r = 0; r < group_.worldSize; ++r) {
    const ElementRange part =
        collective::partOf(Rank{r}, group_.worldSize, call.data.size() / size);
    auto piece = begin(call.ticket, call.data.subspan(part.first * size, part.count * size),
                       [&](auto data, auto ended, auto* out, auto* error) {
                         group_.broadcast(group_.group, data, r, ended, out, error);
                       });
    if (!piece.isOk()) return done(piece.status());
    pieces.push_back(*std::move(piece));
  }
  follow(call.ticket, std::move(pieces), std::move(done));
}

void ForeignCollective::broadcast(const Call& call, Rank root, Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (!error_.isOk()) return done(error_);
  auto piece = begin(call.ticket, call.data, [&](auto data, auto ended, auto* out, auto* error) {
    group_.broadcast(group_.group, data, index(root), ended, out, error);
  });
  if (!piece.isOk()) return done(piece.status());
  follow(call.ticket, {*std::move(piece)}, std::move(done));
}

// A piece may have ended by now. Its news waits on this loop, so it finds the call.
void ForeignCollective::follow(const Ticket& ticket, std::vector<Piece> pieces, Done done) {
  const size_t left = pieces.size();
  const bool isNew =
      underway_.emplace(ticket, Underway{std::move(pieces), left, std::move(done)}).second;
  SLUICE_CHECK(isNew, ticket.step, ticket.number);
}

void ForeignCollective::ended(const Ticket& ticket, const Status& status) {
  const auto found = underway_.find(ticket);
  if (found == underway_.end()) return;
  // With an error the call ends at once. The answers of its other parts find no ticket any
  // more.
  if (--found->second.left > 0 && status.isOk()) return;
  const Underway call = std::move(underway_.extract(found).mapped());
  for (const Piece& piece : call.pieces) {
    if (status.isOk()) group_.take(piece.result, memoryOf(piece.place));
  }
  call.done(status);
  // The other ranks may be in this collective or past it, so nobody could say what a next call
  // would meet.
  if (!status.isOk()) fail(status);
}

void ForeignCollective::fail(const Status& why) {
  if (!error_.isOk()) return;
  error_ = why;
  for (auto& [ticket, call] : std::exchange(underway_, {})) call.done(why);
}

std::string ForeignCollective::describeWait(const Ticket& ticket) const {
  return underway_.contains(ticket) ? "the process group has not ended its collective" : "";
}

}  // namespace sluice::pytorch
