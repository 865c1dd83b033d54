#include <sluice/data/collective/communicator.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/base/units.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::collective {
namespace {

// The time to wait for a rank that has left in good order. Its last messages were on their way when
// it left; a message that has not come by then never will. The loss of another rank, which may be
// why it left, is known by then too.
constexpr auto kAfterGoodbye = std::chrono::seconds(1);

Ticket ticketOf(uint64_t number, CallKind kind, size_t leg) {
  return {Step{number},
          TensorId{static_cast<uint32_t>(static_cast<size_t>(kind) * kMostLegs + leg)}};
}

CallKind kindOf(const Ticket& ticket) {
  return static_cast<CallKind>(index(ticket.number) / kMostLegs);
}

Status otherCall(const Ticket& theirs, Rank from, CallKind ours) {
  return {
      Code::kInvalidArgument,
      fmt::format(
          "call {} is {} on rank {} and {} here: all ranks must make the same calls in one order",
          theirs.step, name(kindOf(theirs)), from, name(ours))};
}

}  // namespace

std::string_view name(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce: return "all-reduce";
    case CallKind::kBroadcast: return "broadcast";
    case CallKind::kReduce: return "reduce";
    case CallKind::kGather: return "gather";
    case CallKind::kScatter: return "scatter";
    case CallKind::kAllGather: return "all-gather";
    case CallKind::kReduceScatter: return "reduce-scatter";
    case CallKind::kAllToAll: return "all-to-all";
    case CallKind::kBarrier: return "barrier";
    case CallKind::kSend: return "send";
    case CallKind::kReceive: return "receive";
  }
  return "?";
}

Result<std::unique_ptr<Communicator>> Communicator::start(const MakeFabric& makeFabric,
                                                          uint64_t earlyBudget) {
  std::unique_ptr<Communicator> communicator(new Communicator(earlyBudget));
  SLUICE_ASSIGN_OR_RETURN(auto fabric, makeFabric(*communicator));
  Loop& loop = fabric->loop();
  // Messages may arrive before this rank can take any, since the fabric knows its receiver from
  // the start. Until loop_ is set they stay with their senders (onMessage), and then all of
  // them are offered again.
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(loop, [&, self = communicator.get()] {
    self->loop_ = &loop;
    self->fabric_ = std::move(fabric);
    self->paced_ = std::make_unique<PacedFabric>(*self->fabric_, earlyBudget);
    // The group itself keeps early messages, so the collective gets only those of calls under way.
    self->collective_ =
        std::make_unique<FabricCollective>(*self->paced_, [](const Ticket&) { return false; });
    self->mailbox_ = std::make_unique<Mailbox>(*self->fabric_);
    self->deferred_.resume(*self->fabric_);
  }));
  return communicator;
}

Communicator::~Communicator() {
  if (loop_ == nullptr) return;  // the communicator never began
  fabric::runBeforeFreeing(loop(), [this] {
    // Peers that leave or are lost are no news from here on. Messages that wait for a peer's call
    // go out now, so that a peer which is a call behind can finish it without us.
    isEnding_ = true;
    for (uint32_t r = 0; r < worldSize() && error_.isOk(); ++r) paced_->release(Rank{r});
    fail({Code::kCancelled, "this rank has shut its process group down"});
    if (leaverTimer_) loop().cancel(*leaverTimer_);
  });
  // The error is ignored: a peer that does not answer has been told all there was to tell.
  if (!loop().inLoop()) (void)fabric::closeAndWait(*fabric_);
  fabric_.reset();
}

void Communicator::allReduce(std::span<std::byte> data, DType dtype, Method method,
                             CallTerms terms) {
  // Numbers are given in the order of calls, and that order is the agreement between ranks:
  // nothing else says that two calls belong together. So a call takes its number even if it
  // fails at once.
  const CallId id{true, nextCollective_++};
  Underway* call = begin(id, CallKind::kAllReduce, std::move(terms));
  if (call == nullptr) return;
  const Ticket ticket = ticketOf(id.number, call->kind, 0);
  call->missing = [this, ticket] { return collective_->missing(ticket); };
  collective_->allReduce({.ticket = ticket, .method = method, .dtype = dtype, .data = data}, {},
                         [this, id](const Status& status) { finish(id, status); });
  openFor(ticket);
}

void Communicator::broadcast(std::span<std::byte> data, Rank root, CallTerms terms) {
  const CallId id{true, nextCollective_++};
  Underway* call = begin(id, CallKind::kBroadcast, std::move(terms));
  if (call == nullptr) return;
  const Ticket ticket = ticketOf(id.number, call->kind, 0);
  call->missing = [this, ticket] { return collective_->missing(ticket); };
  collective_->broadcast({.ticket = ticket, .dtype = DType::kBytes, .data = data}, root,
                         [this, id](const Status& status) { finish(id, status); });
  openFor(ticket);
}

void Communicator::barrier(CallTerms terms) {
  // A byte from every rank to every other one: nobody has all before everybody has come. The
  // slowest rank is then known to each of the others, and named if time runs out.
  const auto bytes = std::make_shared<std::vector<std::byte>>(worldSize());
  terms.memory = bytes;
  Leg leg;
  for (uint32_t r = 0; r < worldSize(); ++r) {
    if (Rank{r} == rank()) continue;
    leg.sends.push_back({Rank{r}, std::span(*bytes).subspan(index(rank()), 1)});
    leg.receives.push_back({Rank{r}, std::span(*bytes).subspan(r, 1)});
  }
  exchange(CallKind::kBarrier, {std::move(leg)}, std::move(terms));
}

void Communicator::exchange(CallKind kind, std::vector<Leg> legs, CallTerms terms) {
  SLUICE_CHECK(!legs.empty() && legs.size() <= kMostLegs, legs.size());
  const CallId id{true, nextCollective_++};
  Underway* call = begin(id, kind, std::move(terms));
  if (call == nullptr) return;
  call->legs = std::move(legs);
  runLeg(id, 0);
}

void Communicator::runLeg(const CallId& id, size_t leg) {
  Underway& call = underway_.at(id);
  const Ticket ticket = ticketOf(id.number, call.kind, leg);
  // This may run inside start(), if the leg has nothing to send or to receive, and it may end
  // the whole call. So it looks everything up again and trusts no reference from before.
  const auto ended = [this, id, leg, ticket](const Status& status) {
    exchanges_.erase(ticket);
    open_.erase(ticket);
    const auto found = underway_.find(id);
    if (found == underway_.end()) return;  // the call has failed meanwhile
    if (!status.isOk()) return finish(id, status);
    if (const auto& then = found->second.legs[leg].then) then();
    if (leg + 1 == found->second.legs.size()) return finish(id, base::ok());
    runLeg(id, leg + 1);
  };
  const auto exchange = std::make_shared<Exchange>(*paced_, ticket, call.legs[leg].sends,
                                                   call.legs[leg].receives, ended);
  exchanges_[ticket] = exchange;
  call.missing = [exchange] { return exchange->missing(); };
  exchange->start();
  if (exchanges_.contains(ticket)) openFor(ticket);  // else the leg has ended at once
}

void Communicator::send(Rank to, uint32_t tag, std::span<std::byte> bytes, CallTerms terms) {
  const CallId id{false, nextMessage_++};
  if (begin(id, CallKind::kSend, std::move(terms)) == nullptr) return;
  mailbox_->send(to, tag, bytes, [this, id](const Status& status) { finish(id, status); });
}

void Communicator::receive(std::optional<Rank> from, uint32_t tag, std::span<std::byte> bytes,
                           std::function<void(Rank)> onSource, CallTerms terms) {
  const CallId id{false, nextMessage_++};
  Underway* call = begin(id, CallKind::kReceive, std::move(terms));
  if (call == nullptr) return;
  if (from) call->missing = [from] { return std::set{*from}; };
  mailbox_->receive(from, tag, bytes,
                    [this, id, onSource = std::move(onSource)](const Status& status, Rank source) {
                      if (underway_.contains(id) && onSource) onSource(source);
                      finish(id, status);
                    });
}

Communicator::Underway* Communicator::begin(const CallId& id, CallKind kind, CallTerms terms) {
  SLUICE_DCHECK(loop().inLoop());
  if (!error_.isOk()) {
    terms.done(error_);
    return nullptr;
  }
  const TimerId timer = loop().after(terms.atMost, [this, id] { timeIsUp(id); });
  if (!left_.empty()) lookForLeavers();
  Underway& call = underway_.emplace(id, Underway{kind, std::move(terms), timer}).first->second;
  if (!id.isCollective) return &call;
  // Ranks that have sent as much as this rank keeps are waiting to hear that it has come to
  // this call (paced_fabric.h). They are told before the call's own messages go out.
  for (const auto& [rank, calls] : std::map(asks_)) {
    if (calls < nextCollective_) tellCalls(rank);
  }
  const Step step{id.number};
  // A message of another kind under this number means that two ranks make different calls, as
  // after a forgotten `if rank == 0`. It is found at the first such message instead of at the
  // time limit, and the error names both calls.
  for (auto early = early_.lower_bound({step, TensorId{0}}); early != early_.end(); ++early) {
    const Ticket& ticket = early->first;
    if (ticket.step != step) break;
    if (kindOf(ticket) == kind) continue;
    (void)refuse(otherCall(ticket, early->second.front()->from, kind));
    return nullptr;
  }
  return &call;
}

void Communicator::finish(const CallId& id, const Status& status) {
  auto call = underway_.extract(id);
  if (call.empty()) return;
  const Underway& ended = call.mapped();
  loop().cancel(ended.timer);
  if (id.isCollective) open_.erase(ticketOf(id.number, ended.kind, 0));
  if (status.isOk()) return ended.terms.done(status);
  // The other ranks may not have failed yet, and the fabric may still be writing into this
  // memory or reading from it. It is kept until the fabric is gone, although the caller is told
  // now.
  kept_.push_back(ended.terms.memory);
  ended.terms.done(status.withContext(describe(id, ended)));
  // A failed collective ends the group, since the others wait for this rank's part. A failed
  // message concerns two ranks only.
  if (id.isCollective) fail(status);
}

void Communicator::fail(const Status& why) {
  SLUICE_DCHECK(loop().inLoop());
  if (!error_.isOk()) return;
  error_ = why;
  // The queue fails first, then the calls: a completion may make another call, which must find
  // error_ set and nothing left to send.
  paced_->fail(why);
  collective_->fail(why);
  early_.clear();
  earlyBytes_.clear();
  while (!underway_.empty()) finish(underway_.begin()->first, why);
}

void Communicator::timeIsUp(const CallId& id) {
  const auto found = underway_.find(id);
  if (found == underway_.end()) return;
  const Underway& call = found->second;
  // Three causes look alike to a caller who only waits: a rank that has sent nothing, a rank
  // that has not come to the call, and a rank that does not read. They are told apart here
  // because they are repaired in different places.
  const auto missing = call.missing ? call.missing() : std::set<Rank>{};
  const auto slow = id.isCollective ? paced_->waitingFor(id.number) : std::set<Rank>{};
  const std::string cause =
      !missing.empty() ? fmt::format("nothing from rank {}", fmt::join(missing, ", "))
      : !slow.empty()  ? fmt::format("rank {} has not made the call", fmt::join(slow, ", "))
      : call.kind == CallKind::kReceive ? "nobody has sent anything"
                                        : "the others do not take what is sent";
  const Status why(Code::kTimeout, fmt::format("not done after {}: {}",
                                               base::formatDuration(call.terms.atMost), cause));
  finish(id, why);
  fail(why);  // bytes may still come for what this call has given up
}

// Opens a call that has been made here for its messages, and hands over those that came before it.
void Communicator::openFor(const Ticket& ticket) {
  const CallId id{true, index(ticket.step)};
  if (!underway_.contains(id)) return;  // the call has ended at once
  open_.insert(ticket);
  handOver(ticket);
  // A message that has waited for room may be for this call.
  deferred_.resume(*fabric_);
}

Result<fabric::Landing> Communicator::deliver(Rank from, const wire::Header& header) {
  const Ticket ticket{header.step, header.tensor};
  const auto exchange = exchanges_.find(ticket);
  auto landing = exchange != exchanges_.end() ? exchange->second->land(from, header)
                                              : collective_->onMessage(from, header.lane, header);
  if (landing.isOk()) return landing;
  // The sender would not hear of it, and this rank would wait for it.
  return refuse({Code::kInvalidArgument,
                 fmt::format("rank {} gives {} {} other sizes or types than this rank: {}", from,
                             name(kindOf(ticket)), header.step, landing.status().message())});
}

// A message that has no business here ends the group: its sender and this rank would wait for each
// other.
Status Communicator::refuse(const Status& why) {
  if (!error_.isOk()) return error_;
  log("collective").warn("rank {} refuses a message: {}", rank(), why.message());
  fail(why);
  return error_;
}

void Communicator::handOver(const Ticket& ticket) {
  auto letters = early_.extract(ticket);
  if (letters.empty()) return;
  // A kept message may still be coming when the call opens. It lies in memory of its own then,
  // and is handed over by its own completion; those that are whole are handed over now, in the
  // order in which they came.
  std::vector<std::shared_ptr<Early>> stillOnTheirWay;
  for (const auto& early : letters.mapped()) {
    if (!early->isHere) {
      stillOnTheirWay.push_back(early);
      continue;
    }
    if (!open_.contains(ticket)) return;  // the call has failed
    forgetEarly(*early);
    const auto landing = deliver(early->from, early->header);
    if (!landing.isOk()) return;
    if (!early->bytes.empty())
      std::memcpy(landing->buffer.data, early->bytes.data(), early->bytes.size());
    landing->done(base::ok());
  }
  if (!stillOnTheirWay.empty()) early_[ticket] = std::move(stillOnTheirWay);
}

void Communicator::forgetEarly(const Early& early) {
  const auto found = earlyBytes_.find(early.from);
  if (early.cost == 0 || found == earlyBytes_.end()) return;
  found->second -= early.cost;
  deferred_.resume(*fabric_, early.from);
}

uint64_t Communicator::keptFrom(Rank peer) const {
  const auto found = earlyBytes_.find(peer);
  return (found == earlyBytes_.end() ? 0 : found->second) + mailbox_->keptFrom(peer);
}

Result<fabric::Landing> Communicator::onMessage(Rank from, fabric::Lane lane,
                                                const wire::Header& header) {
  // Three kinds of messages come here: mail, which has a lane to itself; words about calls on
  // the control lane, which must never wait behind data; and the data of collectives, which
  // either has its place or is kept.
  if (loop_ == nullptr) return deferred_.defer(from, lane);
  if (!error_.isOk()) return error_;
  if (lane == kMailLane) return mailbox_->onMessage(from, header);
  if (lane == fabric::Lane::kControl) return landOnControl(from, header);
  const Ticket ticket{header.step, header.tensor};
  if (kindOf(ticket) > CallKind::kBarrier)
    return refuse(
        {Code::kInvalidArgument,
         fmt::format("rank {} sends for an unknown kind of call; run the same sluice on all ranks",
                     from)});
  if (open_.contains(ticket)) {
    paced_->hasMade(from, index(header.step) + 1);  // the sender has made the call
    return deliver(from, header);
  }
  return keep(from, lane, header);
}

Result<fabric::Landing> Communicator::landOnControl(Rank from, const wire::Header& header) {
  const bool isAsk = header.stage == kAsksForCall;
  if (header.length > 0 || (!isAsk && header.stage != kTellsCalls)) {
    return refuse(
        {Code::kInvalidArgument, fmt::format("rank {} sends a message that this version does not "
                                             "know: {}; run the same sluice on all ranks",
                                             from, header.toString())});
  }
  return fabric::Landing{{}, [this, from, isAsk, calls = index(header.step)](const Status& status) {
                           if (!status.isOk() || !error_.isOk()) return;
                           if (!isAsk) return paced_->hasMade(from, calls);
                           asks_[from] = calls;
                           if (calls < nextCollective_) tellCalls(from);
                         }};
}

void Communicator::tellCalls(Rank to) {
  asks_.erase(to);
  fabric_->send(to, fabric::Lane::kControl, {.step = Step{nextCollective_}, .stage = kTellsCalls},
                {}, [](const Status&) {});  // onPeerLost() tells of a lost rank
}

// Refuses a message that the leg does not receive. A leg receives no more than the call's own
// memory.
Status Communicator::expectLeg(const Underway& call, Rank from, const wire::Header& header) const {
  const Ticket ticket{header.step, header.tensor};
  const size_t leg = index(ticket.number) % kMostLegs;
  const auto expected = leg < call.legs.size() ? Exchange::pieceBytes(call.legs[leg].receives, from,
                                                                      index(header.slice))
                                               : std::nullopt;
  const auto isSame = [&](const auto& early) {
    return early->from == from && early->header.slice == header.slice;
  };
  const auto kept = early_.find(ticket);
  const bool isNew = kept == early_.end() || std::ranges::none_of(kept->second, isSame);
  if (expected == header.length && isNew) return base::ok();
  return {Code::kInvalidArgument,
          fmt::format("rank {} sends more for {} {} than is expected: all ranks must "
                      "make the same calls, with the same sizes",
                      from, name(call.kind), header.step)};
}

// Takes in a message for a call, or a leg of one, that has not begun here.
Result<fabric::Landing> Communicator::keep(Rank from, fabric::Lane lane,
                                           const wire::Header& header) {
  const Ticket ticket{header.step, header.tensor};
  const uint64_t number = index(header.step);
  const auto call = underway_.find({true, number});
  // A number below nextCollective_ without a call under way has ended here, so its message can
  // have no place any more. A number above it is only early, however odd it looks.
  if (call == underway_.end() && number < nextCollective_) {
    return refuse({Code::kInvalidArgument,
                   fmt::format("rank {} sends more for {} {} than is expected: all ranks must "
                               "make the same calls, with the same sizes",
                               from, name(kindOf(ticket)), number)});
  }
  if (call != underway_.end() && call->second.kind != kindOf(ticket))
    return refuse(otherCall(ticket, from, call->second.kind));
  uint64_t cost = 0;
  if (call != underway_.end()) {
    if (const Status known = expectLeg(call->second, from, header); !known.isOk())
      return refuse(known);
  } else {
    // Memory for a call that this rank has made was bounded by the call itself (expectLeg). For
    // a call that it has not made, any length could be true, so the sender's budget bounds it.
    cost = earlyCost(header.length);
    uint64_t& kept = earlyBytes_[from];
    // A rank of this version never sends that much.
    if (kept + cost > earlyBudget_) return deferred_.defer(from, lane);
    kept += cost;
  }
  paced_->hasMade(from, number + 1);
  const auto early =
      std::make_shared<Early>(Early{from, header, std::vector<std::byte>(header.length), cost});
  early_[ticket].push_back(early);
  return fabric::Landing{{early->bytes.data(), early->bytes.size()},
                         [this, early, ticket](const Status& status) {
                           early->isHere = status.isOk();
                           if (open_.contains(ticket)) handOver(ticket);
                         }};
}

void Communicator::onPeerLost(Rank from, const Status& why) {
  std::erase(left_, from);
  if (loop_ != nullptr && !isEnding_) fail(why);
}

void Communicator::onPeerLeft(Rank from) {
  if (loop_ == nullptr || isEnding_) return;
  paced_->release(from);  // sends to it fail from now on, and the waiting ones too
  left_.push_back(from);
  lookForLeavers();
}

void Communicator::lookForLeavers() {
  if (leaverTimer_) return;
  leaverTimer_ = loop().after(kAfterGoodbye, [this] {
    leaverTimer_.reset();
    // A rank that has left is no fault by itself: it may have finished every call that this
    // rank is still in. Only if a call still waits for it is the group at an end, and the first
    // to leave is named, as the others may have left because of it.
    std::set<Rank> missing;
    for (const auto& [id, call] : underway_) {
      if (call.missing) missing.merge(call.missing());
    }
    const auto first =
        std::ranges::find_if(left_, [&](Rank rank) { return missing.contains(rank); });
    if (first != left_.end())
      return fail({Code::kPeerLost, fmt::format("rank {} has left the process group", *first)});
    if (!underway_.empty()) lookForLeavers();
  });
}

std::string Communicator::describe(const CallId& id, const Underway& call) {
  return fmt::format("{} {}", name(call.kind), id.number);
}

}  // namespace sluice::collective
