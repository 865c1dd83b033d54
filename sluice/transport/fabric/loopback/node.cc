#include <sluice/transport/fabric/loopback/node.h>

#include <cstring>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::fabric {

Node::Node(Rank rank, size_t worldSize, Epoch epoch, Loop& loop, Receiver& receiver,
           Duration closeDeadline, FindNode findNode)
    : rank_(rank),
      epoch_(epoch),
      loop_(loop),
      receiver_(receiver),
      findNode_(std::move(findNode)),
      peers_(worldSize),
      closeWatch_(loop, closeDeadline) {}

Counters Node::counters() const {
  return counters_.with([](const Counters& counters) { return counters; });
}

std::optional<TimePoint> Node::lastHeard(Rank peer) const {
  SLUICE_DCHECK(loop_.inLoop());
  return peers_.at(index(peer)).lastHeard;
}

void Node::postTo(Rank to, std::function<void(Node&)> call) {
  if (const auto node = findNode_(to)) {
    // The task holds the node, which thereby outlives its fabric until the task has run.
    node->loop_.post([node, call = std::move(call)] { call(*node); });
  }
}

void Node::send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (state_ != State::kOpen) return done(closedStatus());
  if (const Status status = checkSend(to, peers_.size(), message, payload); !status.isOk())
    return done(status);
  Peer& target = peer(to);
  if (!target.gone.isOk()) return done(target.gone);
  const auto envelope = std::make_shared<Envelope>();
  envelope->header =
      makeHeader(message, epoch_, rank_, to, lane,
                 target.streams[static_cast<size_t>(lane)].nextSequence++, payload.bytes);
  envelope->done = std::move(done);
  // The payload is not copied here: both loops share the envelope, and whoever comes first
  // takes the bytes under its lock. The receiver copies them, or the sender takes them back
  // when it cannot wait.
  envelope->payload.with([&](auto& bytes) { bytes = payload; });
  target.talked = true;
  target.unfinished.push_back(envelope);
  // The message is listed before the peer is looked for. If nobody is there, it ends with all
  // other messages to this rank, in their order.
  if (!findNode_(to)) return peerLost(to, Status(Code::kUnavailable, "nobody is there"));
  postTo(to, [envelope](Node& node) { node.arrive(envelope); });
}

void Node::arrive(const EnvelopePtr& envelope) {
  const Rank from = envelope->header.source;
  // A message that arrives too late is answered with how this rank has ended: its sender may
  // not have talked with it before, and would wait for ever.
  if (state_ == State::kEnded) {
    return tellHowWeEnded(from, saidGoodbye_);
  }
  Peer& source = peer(from);
  // Nothing may follow the news of a loss. A rank that has left, however, may still have
  // messages on their way.
  if (!source.gone.isOk() && source.gone.code() == Code::kPeerLost) return;
  source.talked = true;
  source.lastHeard = loop_.now();
  source.streams[static_cast<size_t>(envelope->header.lane)].inbox.push_back(envelope);
  pump(from, envelope->header.lane);
}

void Node::pump(Rank from, Lane lane) {
  Stream& stream = peer(from).streams[static_cast<size_t>(lane)];
  while (!stream.inbox.empty() && !stream.isWaiting && state_ != State::kEnded) {
    const EnvelopePtr envelope = stream.inbox.front();
    auto answer = receiver_.onMessage(from, lane, envelope->header);
    // The message stays at the front of its lane, and resume() offers it again: so the lane
    // keeps its order.
    if (answer.isOk() && answer->isLater) {
      stream.isWaiting = true;
      return;
    }
    stream.inbox.pop_front();
    if (answer.isOk()) {
      deliver(envelope, *std::move(answer));
    } else {
      counters_.with([](Counters& counters) { counters.drops.count(wire::Drop::kRefused); });
    }
    // The sender waits for its buffer and not for our opinion, so it is told in either case.
    postTo(from, [envelope](Node& node) { node.sent(envelope); });
  }
}

void Node::deliver(const EnvelopePtr& envelope, Landing landing) {
  const wire::Header& header = envelope->header;
  if (const Status fits = checkLanding(landing, header); !fits.isOk()) {
    counters_.with([](Counters& counters) { counters.drops.count(wire::Drop::kNoRoom); });
    return landing.done(fits);
  }
  const bool isWhole = envelope->payload.with([&](std::optional<ConstBuffer>& payload) {
    if (!payload) return false;
    if (payload->bytes > 0) std::memcpy(landing.buffer.data, payload->data, payload->bytes);
    payload.reset();
    return true;
  });
  if (!isWhole)
    return landing.done(
        lostStatus(header.source, Status(Code::kPeerLost, "it ended in mid-message")));
  counters_.with([&](Counters& counters) {
    ++counters.messagesReceived;
    counters.bytesReceived += header.length;
  });
  landing.done(Status());
}

void Node::sent(const EnvelopePtr& envelope) {
  Peer& target = peer(envelope->header.destination);
  if (std::erase(target.unfinished, envelope) == 0) return;  // it was ended otherwise
  lastTaken_ = loop_.now();
  counters_.with([&](Counters& counters) {
    ++counters.messagesSent;
    counters.bytesSent += envelope->header.length;
  });
  std::exchange(envelope->done, nullptr)(Status());
  endIfFlushed();
}

void Node::failUnfinished(Peer& peer, const Status& why) {
  for (const auto& envelope : std::exchange(peer.unfinished, {})) {
    // The payload is taken back first. A receiver that has not copied it yet then finds it
    // gone, and the sender may free its memory as soon as its completion has run.
    envelope->payload.with([](auto& payload) { payload.reset(); });
    std::exchange(envelope->done, nullptr)(why);
  }
}

void Node::resume(Rank from, Lane lane) {
  SLUICE_DCHECK(loop_.inLoop());
  if (index(from) >= peers_.size()) return;
  if (std::exchange(peer(from).streams[static_cast<size_t>(lane)].isWaiting, false))
    pump(from, lane);
}

void Node::giveUp(Rank rank, const Status& why) {
  SLUICE_DCHECK(loop_.inLoop());
  if (index(rank) >= peers_.size() || rank == rank_ || state_ == State::kEnded) return;
  // A loss is mutual: a rank that is given up must not go on as if the connection were there.
  if (peer(rank).gone.isOk())
    postTo(rank, [self = rank_, why](Node& node) { node.peerLost(self, why); });
  peerLost(rank, why);
}

void Node::peerLost(Rank rank, const Status& why) {
  Peer& lost = peer(rank);
  if (state_ == State::kEnded || !lost.gone.isOk()) return;
  lost.gone = lostStatus(rank, why);
  for (Stream& stream : lost.streams) stream = {};
  // Completions come before the news of the loss, as the contract of Fabric says.
  failUnfinished(lost, lost.gone);
  receiver_.onPeerLost(rank, lost.gone);
  endIfFlushed();
}

void Node::peerLeft(Rank rank) {
  Peer& left = peer(rank);
  if (state_ == State::kEnded || !left.gone.isOk()) return;
  left.gone = leftStatus(rank);
  failUnfinished(left, left.gone);
  receiver_.onPeerLeft(rank);
  endIfFlushed();
}

void Node::close(Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (state_ == State::kEnded) return done(Status());
  closers_.push_back(std::move(done));
  if (std::exchange(state_, State::kClosing) == State::kClosing) return;
  closeWatch_.start([this] { return lastTaken_; },
                    [weak = weak_from_this()](const Status& why) {
                      if (const auto node = weak.lock()) node->end(why);
                    });
  endIfFlushed();
}

void Node::endIfFlushed() {
  if (state_ != State::kClosing) return;
  for (const Peer& peer : peers_) {
    if (!peer.unfinished.empty()) return;
  }
  end(Status());
}

void Node::abort() {
  SLUICE_DCHECK(loop_.inLoop());
  if (state_ == State::kOpen) state_ = State::kClosing;
  end(closedStatus());
}

void Node::end(const Status& result) {
  if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  saidGoodbye_ = result.code() != Code::kCancelled;
  closeWatch_.stop();
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    Peer& other = peers_[i];
    for (Stream& stream : other.streams) stream = {};
    if (other.talked && other.gone.isOk() && Rank{i} != rank_) {
      // A rank that waits for bytes of ours has lost us, and so has every rank when this one is
      // torn down.
      tellHowWeEnded(Rank{i}, saidGoodbye_ && other.unfinished.empty());
    }
    failUnfinished(other, closedStatus());
  }
  // close() completes last, as it promises: no other completion of this fabric follows it.
  for (const auto& done : std::exchange(closers_, {})) done(result);
  hasEnded_ = true;
}

void Node::tellHowWeEnded(Rank to, bool inGoodOrder) {
  postTo(to, [self = rank_, inGoodOrder](Node& node) {
    if (inGoodOrder) return node.peerLeft(self);
    node.peerLost(self, Status(Code::kPeerLost, "it ended without a goodbye"));
  });
}

}  // namespace sluice::fabric
