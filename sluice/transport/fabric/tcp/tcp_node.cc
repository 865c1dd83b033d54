#include <sluice/transport/fabric/tcp/tcp_node.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::fabric {
namespace {

constexpr auto kLanesByUrgency = std::array{Lane::kControl, Lane::kUrgent, Lane::kBulk};
static_assert(kLanesByUrgency.size() == wire::kLanes);

// The time that a lane waits for a more urgent lane before it looks whether the other still moves.
constexpr auto kLookAgainAfter = std::chrono::milliseconds(20);

// A connection to this rank's port, as the doorman sees it.
class Knock final : public door::Candidate {
 public:
  explicit Knock(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}

  Progress advance() override {
    Io io = stream_->handshake();
    switch (io.outcome) {
      case Io::Outcome::kMoved: return {Step::kProved};
      case Io::Outcome::kWait: return {};
      case Io::Outcome::kEnd: return {Step::kFailed, Status(Code::kPeerLost, "it hung up")};
      case Io::Outcome::kFailed: break;
    }
    return {Step::kFailed, std::move(io.status)};
  }
  uint32_t events() const override { return stream_->handshakeEvents(); }
  bool saidHello() const override { return stream_->saidHello(); }
  int fd() const override { return stream_->fd(); }
  std::unique_ptr<Stream> takeStream() { return std::move(stream_); }

 private:
  std::unique_ptr<Stream> stream_;
};

}  // namespace

TcpNode::TcpNode(net::EpollLoop& loop, TcpMembership membership, const TcpOptions& options,
                 Receiver& receiver)
    : loop_(loop),
      membership_(std::move(membership)),
      options_(options),
      receiver_(receiver),
      maker_(membership_.key, options, membership_.addresses.size() - 1),
      peers_(membership_.addresses.size()),
      self_(receiver, counters_) {}

Counters TcpNode::counters() const {
  return counters_.with([](const Counters& counters) { return counters; });
}

void TcpNode::start(net::Fd listener) {
  if (state_ != State::kOpen) return;
  // Strangers are held off by a thread of its own, so that a flood of connections cannot keep
  // the work loop busy. A candidate reaches the loop only after it has proved the job key; it
  // comes as a posted task, and the node may have ended by then, hence the weak pointer.
  door::Doorman::Handlers handlers;
  handlers.greet = [this](net::Fd socket, const Address& peer) {
    return std::make_unique<Knock>(maker_.server(std::move(socket), peer));
  };
  handlers.proved = [weak = weak_from_this(),
                     &loop = loop_](std::unique_ptr<door::Candidate> candidate) {
    // The stream is shared, since a task must be copyable.
    auto stream =
        std::make_shared<std::unique_ptr<Stream>>(static_cast<Knock&>(*candidate).takeStream());
    loop.post([weak, stream] {
      if (const auto node = weak.lock()) node->letIn(std::move(*stream));
    });
  };
  handlers.turnedAway = [this](const Address& peer, const Status& why) {
    log("fabric").debug("turned away {}: {}", peer.toString(), why.message());
    counters_.with([](Counters& counters) { ++counters.strangers; });
  };
  doorman_ =
      std::make_unique<door::Doorman>(membership_.door, std::move(listener),
                                      door::DoorOptions{.deadline = options_.handshakeDeadline,
                                                        .maxStrangers = options_.maxStrangers},
                                      std::move(handlers));
}

std::optional<TimePoint> TcpNode::lastHeard(Rank rank) const {
  SLUICE_DCHECK(loop_.inLoop());
  return peers_.at(index(rank)).lastHeard;
}

// ---- Sending ----

void TcpNode::send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (state_ != State::kOpen) return done(closedStatus());
  if (const Status status = checkSend(to, peers_.size(), message, payload); !status.isOk())
    return done(status);
  if (to == rank()) {
    return self_.push(
        makeHeader(message, membership_.epoch, to, to, lane, selfSequence_++, payload.bytes),
        payload, std::move(done));
  }
  Peer& target = peer(to);
  if (!target.gone.isOk()) return done(target.gone);
  auto& out = target.out[static_cast<size_t>(lane)];
  if (out) {
    out->push(message, payload, std::move(done));
  } else {
    out = std::make_shared<Outgoing>(loop_, StreamClaim{membership_.epoch, rank(), to, lane},
                                     membership_.addresses[index(to)], maker_, options_, counters_,
                                     *this);
    out->push(message, payload, std::move(done));
    std::shared_ptr<Outgoing>(out)->connect();  // may fail at once and take `out` with it
  }
  orderLanes(to);
}

// Then the message only joins a queue: the connection is there, and its owner is told nothing.
bool TcpNode::sendsQuietly(Rank to, Lane lane, const Message& message,
                           const ConstBuffer& payload) const {
  return state_ == State::kOpen && checkSend(to, peers_.size(), message, payload).isOk() &&
         peer(to).gone.isOk() && peer(to).out[static_cast<size_t>(lane)] != nullptr;
}

// A lane writes only while no more urgent lane to the same rank has something to write and gets it
// written. A stuck lane, whose receiver takes nothing, holds no other lane up.
void TcpNode::orderLanes(Rank rank) {
  Peer& target = peer(rank);
  bool isUrgentMoving = false;
  bool isHolding = false;
  for (const Lane lane : kLanesByUrgency) {
    const auto& out = target.out[static_cast<size_t>(lane)];
    if (!out) continue;
    out->hold(isUrgentMoving);
    isHolding = isHolding || (isUrgentMoving && out->hasQueued());
    isUrgentMoving = isUrgentMoving || out->isMoving();
  }
  if (!isHolding || target.holdTimer) return;
  target.holdTimer = loop_.after(kLookAgainAfter, [weak = weak_from_this(), rank] {
    const auto node = weak.lock();
    if (!node) return;
    node->peer(rank).holdTimer.reset();
    if (node->state_ != State::kEnded) node->orderLanes(rank);
  });
}

void TcpNode::outgoingHeard(Rank rank) {
  peer(rank).lastHeard = loop_.now();
}

void TcpNode::outgoingDrained(Rank rank, Lane) {
  orderLanes(rank);
  sayGoodbyeIfFlushed(peer(rank));
}

// ---- Receiving ----

void TcpNode::letIn(std::unique_ptr<Stream> stream) {
  // The peer holds the job key, so it belongs to the job; its claim may still be wrong, from an
  // older epoch or a rank that came back. A second connection for a lane is refused rather than
  // replacing the first, whose sequence it could not continue.
  if (state_ == State::kEnded) return;
  const auto claim = StreamClaim::fromBytes(stream->claim());
  const auto refuse = [&](std::string_view why) {
    log("fabric").warn("refused a connection that holds the job key: {}", why);
    counters_.with([](Counters& counters) { ++counters.strangers; });
  };
  if (!claim) return refuse("it names no lane");
  if (claim->epoch != membership_.epoch) {
    counters_.with([](Counters& counters) { counters.drops.count(wire::Drop::kWrongEpoch); });
    return refuse(fmt::format("it is of membership epoch {}, and this rank is of {}",
                              index(claim->epoch), index(membership_.epoch)));
  }
  if (claim->destination != rank())
    return refuse(fmt::format("it is for rank {}", index(claim->destination)));
  if (index(claim->source) >= peers_.size() || claim->source == rank()) {
    return refuse(fmt::format("there is no other rank {}", index(claim->source)));
  }
  Peer& source = peer(claim->source);
  auto& in = source.in[static_cast<size_t>(claim->lane)];
  if (!source.gone.isOk()) return refuse(fmt::format("rank {} is gone", index(claim->source)));
  if (in) return refuse(fmt::format("rank {} has this lane already", index(claim->source)));
  in = std::make_shared<Incoming>(loop_, std::move(stream), *claim, receiver_, counters_, *this);
  source.lastHeard = loop_.now();
  counters_.with([](Counters& counters) { ++counters.connections; });
  const auto keep = in;
  keep->start();
  if (source.saidGoodbye) keep->sayGoodbye(closedStatus());
}

void TcpNode::resume(Rank from, Lane lane) {
  SLUICE_DCHECK(loop_.inLoop());
  if (index(from) >= peers_.size() || state_ == State::kEnded) return;
  if (from == rank()) return self_.resume(lane);
  if (const auto in = peer(from).in[static_cast<size_t>(lane)]) in->resume();
}

void TcpNode::incomingHeard(Rank rank) {
  peer(rank).lastHeard = loop_.now();
}

// ---- The end of a peer ----

void TcpNode::outgoingLost(Rank rank, const Status& why) {
  lose(rank, why);
}

void TcpNode::incomingLost(Rank rank, const Status& why) {
  lose(rank, why);
}

void TcpNode::giveUp(Rank rank, const Status& why) {
  SLUICE_DCHECK(loop_.inLoop());
  if (index(rank) >= peers_.size() || rank == this->rank() || state_ == State::kEnded) return;
  if (peer(rank).gone.isOk()) lose(rank, why);
}

void TcpNode::lose(Rank rank, const Status& why) {
  // A peer is lost once, whichever of its six connections breaks first; ending the others here
  // keeps their failures from being reported again. Completions come before onPeerLost(), as
  // the contract says. A rank that had said goodbye and breaks later was still sending, so it
  // is lost all the same.
  Peer& lost = peer(rank);
  if (state_ == State::kEnded || lost.gone.code() == Code::kPeerLost) return;
  if (lost.saidGoodbye) {
    // Both sides are leaving: a broken connection makes no difference to anybody.
    endConnections(lost, closedStatus(), /*atOnce=*/false);
    return endIfClosed();
  }
  lost.gone = lostStatus(rank, why);
  endConnections(lost, lost.gone, /*atOnce=*/true);
  if (!std::exchange(lost.toldLeft, true)) receiver_.onPeerLost(rank, lost.gone);
  endIfClosed();
}

void TcpNode::outgoingGoodbye(Rank rank) {
  markLeft(rank);
  tellIfLeft(rank);
  endIfClosed();
}

void TcpNode::incomingGoodbye(Rank rank, Lane) {
  markLeft(rank);
}

void TcpNode::markLeft(Rank rank) {
  // A goodbye ends what we would send at once, but not what the peer has sent: its messages may
  // still lie in the sockets. Only when the last of its connections has been read to its end
  // does tellIfLeft() say so, so that onPeerLeft() is the last word about it.
  Peer& left = peer(rank);
  left.heardGoodbye = true;
  if (!left.gone.isOk()) return;
  left.gone = leftStatus(rank);
  for (auto& out : left.out) {
    if (const auto ending = std::exchange(out, nullptr)) ending->end(left.gone, /*atOnce=*/false);
  }
}

void TcpNode::tellIfLeft(Rank rank) {
  Peer& left = peer(rank);
  const bool isStillSending =
      std::ranges::any_of(left.in, [](const auto& in) { return in != nullptr; });
  if (!left.heardGoodbye || isStillSending || std::exchange(left.toldLeft, true)) return;
  receiver_.onPeerLeft(rank);
}

void TcpNode::incomingEnded(Rank rank, Lane lane) {
  if (const auto in = std::exchange(peer(rank).in[static_cast<size_t>(lane)], nullptr)) {
    in->end(closedStatus(), /*atOnce=*/false);
  }
  tellIfLeft(rank);
  endIfClosed();
}

void TcpNode::outgoingEnded(Rank rank, Lane lane) {
  if (const auto out = std::exchange(peer(rank).out[static_cast<size_t>(lane)], nullptr)) {
    out->end(closedStatus(), /*atOnce=*/false);
  }
  endIfClosed();
}

void TcpNode::endConnections(Peer& peer, const Status& why, bool atOnce) {
  for (auto& out : peer.out) {
    if (const auto ending = std::exchange(out, nullptr)) ending->end(why, atOnce);
  }
  for (auto& in : peer.in) {
    if (const auto ending = std::exchange(in, nullptr)) ending->end(why, atOnce);
  }
}

// ---- The end of this rank ----

void TcpNode::close(Done done) {
  // A close has to wait for others, and one of them may hang. The watch ends it after a
  // silence, not after a time: a slow network may take long over what is queued, as long as it
  // takes something.
  SLUICE_DCHECK(loop_.inLoop());
  if (state_ == State::kEnded) return done(Status());
  closers_.push_back(std::move(done));
  if (std::exchange(state_, State::kClosing) == State::kClosing) return;
  closeWatch_.start([this] { return lastTaken(); },
                    [weak = weak_from_this()](const Status& why) {
                      if (const auto node = weak.lock()) node->end(why);
                    });
  for (Peer& each : peers_) sayGoodbyeIfFlushed(each);
  endIfClosed();
}

TimePoint TcpNode::lastTaken() const {
  TimePoint last{};
  for (const Peer& each : peers_) {
    for (const auto& out : each.out) {
      if (out) last = std::max(last, out->lastProgress());
    }
  }
  return last;
}

// Says goodbye on all lanes at once: a rank that hears it on one lane knows that nothing new comes
// on the others.
void TcpNode::sayGoodbyeIfFlushed(Peer& peer) {
  if (state_ != State::kClosing || peer.saidGoodbye) return;
  for (const auto& out : peer.out) {
    if (out && out->hasQueued()) return;
  }
  peer.saidGoodbye = true;
  for (const auto& out : peer.out) {
    if (out) out->sayGoodbye();
  }
  for (const auto& in : peer.in) {
    if (in) in->sayGoodbye(closedStatus());
  }
}

void TcpNode::endIfClosed() {
  if (state_ != State::kClosing || !self_.isEmpty()) return;
  for (const Peer& each : peers_) {
    const auto isThere = [](const auto& connection) { return connection != nullptr; };
    if (std::ranges::any_of(each.out, isThere) || std::ranges::any_of(each.in, isThere)) return;
  }
  end(Status());
}

void TcpNode::abort() {
  SLUICE_DCHECK(loop_.inLoop());
  end(closedStatus());
}

void TcpNode::end(const Status& result) {
  if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  closeWatch_.stop();
  doorman_.reset();
  for (Peer& each : peers_) {
    if (each.holdTimer) loop_.cancel(*std::exchange(each.holdTimer, std::nullopt));
    // No reset for a rank that has our goodbye: it would take back bytes that the rank may still be
    // reading.
    endConnections(each, closedStatus(),
                   /*atOnce=*/result.code() == Code::kCancelled || !each.saidGoodbye);
  }
  self_.fail(closedStatus());
  for (const auto& done : std::exchange(closers_, {})) done(result);
  hasEnded_ = true;
}

}  // namespace sluice::fabric
