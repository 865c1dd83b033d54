#include <tools/sim/sim_node.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::sim {

using fabric::Done;
using fabric::Landing;
using fabric::Lane;

SimNode::SimNode(SimHub& hub, Rank rank, HostLoop& loop, fabric::Receiver& receiver)
    : hub_(hub),
      rank_(rank),
      loop_(loop),
      receiver_(receiver),
      peers_(hub.options_.worldSize),
      closeWatch_(loop, hub.options_.closeDeadline),
      self_(receiver, counters_) {}

fabric::Counters SimNode::counters() const {
  return counters_.with([](const fabric::Counters& counters) { return counters; });
}

std::optional<TimePoint> SimNode::lastHeard(Rank rank) const {
  return peers_.at(index(rank)).lastHeard;
}

void SimNode::count(wire::Drop drop) {
  counters_.with([&](fabric::Counters& counters) { counters.drops.count(drop); });
}

// ---- The sender's side ----

void SimNode::send(Rank to, Lane lane, const fabric::Message& message, fabric::ConstBuffer payload,
                   Done done) {
  if (state_ != State::kOpen) return done(fabric::closedStatus());
  if (const Status status = fabric::checkSend(to, peers_.size(), message, payload); !status.isOk())
    return done(status);
  Peer& target = peer(to);
  if (!target.gone.isOk()) return done(target.gone);
  if (to == rank_) {
    return self_.push(
        fabric::makeHeader(message, hub_.options_.epoch, rank_, to, lane,
                           selfSequences_[static_cast<size_t>(lane)]++, payload.bytes),
        payload, std::move(done));
  }
  Flow*& flow = target.out[static_cast<size_t>(lane)];
  if (flow == nullptr) flow = &hub_.open(rank_, to, lane);
  const uint64_t bytes = payload.bytes * hub_.options_.shrink;
  loop_.charge(hub_.options_.costs.sent(bytes));
  Flight* flight = hub_.flights_.take();
  flight->header = fabric::makeHeader(message, hub_.options_.epoch, rank_, to, lane,
                                      flow->sequence++, payload.bytes);
  flight->payload = payload;
  flight->sent = std::move(done);
  flight->streamBytes = wire::kHeaderBytes + bytes;
  const bool isAnybodyThere = hub_.presence(to) == SimHub::Presence::kHere;
  flight->readyAt = isAnybodyThere ? loop_.freeAt() : kNever;
  ++target.undelivered;
  target.talked = true;
  hub_.append(*flow, flight);
  if (!isAnybodyThere)
    hub_.tell(rank_, to, hub_.presence(to), Status(Code::kUnavailable, "nobody is there"));
}

void SimNode::completeSent(Flow& flow) {
  while (flow.unsent != nullptr && flow.unsent->isWritten) {
    Flight* flight = flow.unsent;
    flow.unsent = flight->next;
    counters_.with([&](fabric::Counters& counters) {
      ++counters.messagesSent;
      counters.bytesSent += flight->header.length;
    });
    flight->isSent = true;
    const Done done = std::exchange(flight->sent, nullptr);
    hub_.settle(flow, flight);
    done(base::ok());
  }
}

void SimNode::wasDelivered(Rank to) {
  --peer(to).undelivered;
  lastTaken_ = loop_.now();
  if (state_ == State::kClosing) {
    loop_.post([weak = weak_from_this()] {
      if (const auto node = weak.lock()) node->endIfFlushed();
    });
  }
}

// ---- The receiver's side ----

void SimNode::pump(Flow& flow) {
  Peer& source = peer(flow.from);
  if (source.gone.code() == Code::kPeerLost) return;
  source.in[static_cast<size_t>(flow.lane)] = &flow;
  source.talked = true;
  source.lastHeard = loop_.now();
  while (flow.reading != nullptr && !flow.isLater && state_ != State::kEnded) {
    Flight& flight = *flow.reading;
    if (!flight.isAsked && !ask(flow, flight)) return;
    const uint64_t bytes =
        std::min(hub_.network_.readable(flow.stream), flight.streamBytes - flight.read);
    if (bytes > 0) hub_.network_.read(flow.stream, bytes);
    flight.read += bytes;
    if (flight.read < flight.streamBytes) return;
    flow.reading = flight.next;
    deliver(flow, flight);
    if (loop_.freeAt() > loop_.now())
      return hub_.queueReading(flow);  // the next waits for its turn
  }
}

bool SimNode::ask(Flow& flow, Flight& flight) {
  if (hub_.network_.readable(flow.stream) < wire::kHeaderBytes) return false;
  auto answer = receiver_.onMessage(flow.from, flow.lane, flight.header);
  if (answer.isOk() && answer->isLater) {
    flow.isLater = true;
    return false;
  }
  flight.isAsked = true;
  if (!answer.isOk()) {
    flight.isRefused = true;
    count(wire::Drop::kRefused);
    return true;
  }
  flight.landing = *std::move(answer);
  if (const Status fits = fabric::checkLanding(flight.landing, flight.header); !fits.isOk()) {
    flight.isRefused = true;
    count(wire::Drop::kNoRoom);
    std::exchange(flight.landing, {}).done(fits);
  }
  return true;
}

void SimNode::deliver(Flow& flow, Flight& flight) {
  const uint64_t length = flight.header.length;
  loop_.charge(hub_.options_.costs.received(length * hub_.options_.shrink));
  hub_.delivered(flow, flight);
  Landing landing = std::exchange(flight.landing, {});
  const bool isRefused = flight.isRefused;
  if (!isRefused) {
    if (length > 0) std::memcpy(landing.buffer.data, flight.bytes.data(), length);
    counters_.with([&](fabric::Counters& counters) {
      ++counters.messagesReceived;
      counters.bytesReceived += length;
    });
  }
  flight.isDelivered = true;
  hub_.settle(flow, &flight);
  if (!isRefused) landing.done(base::ok());
}

void SimNode::resume(Rank from, Lane lane) {
  if (index(from) >= peers_.size() || state_ == State::kEnded) return;
  if (from == rank_) return self_.resume(lane);
  Flow* flow = peer(from).in[static_cast<size_t>(lane)];
  if (flow != nullptr && std::exchange(flow->isLater, false)) pump(*flow);
}

// ---- Ends ----

void SimNode::hear(Rank about, SimHub::Presence end, const Status& why) {
  loop_.post([weak = weak_from_this(), about, end, why] {
    const auto node = weak.lock();
    if (node == nullptr) return;
    if (end == SimHub::Presence::kLeft) return node->peerLeft(about);
    node->peerLost(about, why.isOk() ? Status(Code::kPeerLost, "it ended without a goodbye") : why);
  });
}

void SimNode::giveUp(Rank rank, const Status& why) {
  if (index(rank) >= peers_.size() || rank == rank_ || state_ == State::kEnded) return;
  if (peer(rank).gone.isOk()) hub_.tell(rank, rank_, SimHub::Presence::kLost, why);
  peerLost(rank, why);
}

void SimNode::peerLost(Rank rank, const Status& why) {
  Peer& lost = peer(rank);
  if (state_ == State::kEnded || !lost.gone.isOk()) return;
  lost.gone = fabric::lostStatus(rank, why);
  endIncoming(lost, lost.gone);
  endOutgoing(lost, lost.gone);
  receiver_.onPeerLost(rank, lost.gone);
  endIfFlushed();
}

void SimNode::peerLeft(Rank rank) {
  Peer& left = peer(rank);
  if (state_ == State::kEnded || !left.gone.isOk()) return;
  left.gone = fabric::leftStatus(rank);
  endOutgoing(left, left.gone);
  receiver_.onPeerLeft(rank);
  endIfFlushed();
}

void SimNode::endOutgoing(Peer& target, const Status& why) {
  target.undelivered = 0;
  for (Flow* flow : target.out) {
    if (flow == nullptr) continue;
    hub_.network_.reset(flow->stream);
    flow->writing = nullptr;
    std::vector<Done> completions;
    for (Flight* flight = std::exchange(flow->unsent, nullptr); flight != nullptr;) {
      Flight* next = flight->next;
      flight->isSent = true;
      completions.push_back(std::exchange(flight->sent, nullptr));
      hub_.settle(*flow, flight);
      flight = next;
    }
    for (const Done& done : completions) done(why);
  }
}

void SimNode::endIncoming(Peer& source, const Status& why) {
  for (Flow* flow : source.in) {
    if (flow == nullptr) continue;
    hub_.network_.reset(flow->stream);
    flow->isLater = false;
    std::vector<Done> landings;
    for (Flight* flight = std::exchange(flow->reading, nullptr); flight != nullptr;) {
      Flight* next = flight->next;
      flight->isDelivered = true;
      if (flight->landing.done) landings.push_back(std::exchange(flight->landing, {}).done);
      hub_.settle(*flow, flight);
      flight = next;
    }
    for (const Done& done : landings) done(why);
  }
}

void SimNode::close(Done done) {
  if (state_ == State::kEnded) return done(base::ok());
  closers_.push_back(std::move(done));
  if (std::exchange(state_, State::kClosing) == State::kClosing) return;
  closeWatch_.start([this] { return lastTaken_; },
                    [weak = weak_from_this()](const Status& why) {
                      if (const auto node = weak.lock()) node->end(why);
                    });
  endIfFlushed();
}

void SimNode::endIfFlushed() {
  if (state_ != State::kClosing || !self_.isEmpty()) return;
  for (const Peer& each : peers_) {
    if (each.undelivered > 0) return;
  }
  end(base::ok());
}

void SimNode::abort() {
  end(fabric::closedStatus());
}

void SimNode::end(const Status& result) {
  const auto keep = shared_from_this();
  if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  const bool isGoodbye = result.code() != Code::kCancelled;
  closeWatch_.stop();
  hub_.ended(rank_, isGoodbye ? SimHub::Presence::kLeft : SimHub::Presence::kLost);
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    Peer& other = peers_[i];
    if (other.talked && other.gone.isOk() && Rank{i} != rank_) {
      // A rank that still waits for something of ours has lost it; so has every rank when we are
      // torn down.
      const bool isInGoodOrder = isGoodbye && other.undelivered == 0;
      hub_.tell(Rank{i}, rank_, isInGoodOrder ? SimHub::Presence::kLeft : SimHub::Presence::kLost,
                {});
    }
    endIncoming(other, fabric::closedStatus());
    endOutgoing(other, fabric::closedStatus());
  }
  self_.fail(fabric::closedStatus());
  for (const Done& done : std::exchange(closers_, {})) done(result);
}

}  // namespace sluice::sim
