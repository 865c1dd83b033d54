#include <sluice/session/elastic/testing/simulated_node.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <sluice/transport/fabric/common.h>

namespace sluice::session {

using fabric::Done;
using fabric::Landing;
using fabric::Lane;

namespace {

using namespace std::chrono_literals;

constexpr Duration kToWrite = 30us;      // until the kernel has taken a payload
constexpr Duration kSlowLanding = 3ms;   // until the rest of a payload is there
constexpr uint64_t kSlowOneOf = 4;       // payloads
constexpr Duration kCloseDeadline = 2s;  // as TcpOptions

Status goneStatus() {
  return {Code::kPeerLost, "it ended without a goodbye"};
}

}  // namespace

SimulatedNode::SimulatedNode(SimulatedNetwork& network, std::vector<uint32_t> ports, Rank rank,
                             Epoch epoch, ProcessLoop& loop, fabric::Receiver& receiver)
    : network_(network),
      ports_(std::move(ports)),
      rank_(rank),
      epoch_(epoch),
      loop_(loop),
      receiver_(receiver),
      peers_(ports_.size()),
      closeWatch_(loop, kCloseDeadline),
      self_(receiver, counters_) {}

fabric::Counters SimulatedNode::counters() const {
  return counters_.with([](const fabric::Counters& counters) { return counters; });
}

std::optional<TimePoint> SimulatedNode::lastHeard(Rank rank) const {
  return peers_.at(index(rank)).lastHeard;
}

uint32_t SimulatedNode::process() const {
  return network_.ports_[ports_[index(rank_)]].process;
}

void SimulatedNode::tell(Rank to, SimulatedNetwork::ToNode toNode) {
  network_.tell(process(), ports_[index(to)], std::move(toNode));
}

// ---- The sender's side ----

void SimulatedNode::send(Rank to, Lane lane, const fabric::Message& message,
                         fabric::ConstBuffer payload, Done done) {
  if (state_ != State::kOpen) return done(fabric::closedStatus());
  if (const Status status = fabric::checkSend(to, peers_.size(), message, payload); !status.isOk())
    return done(status);
  const auto at = static_cast<size_t>(lane);
  if (to == rank_) {
    return self_.push(
        fabric::makeHeader(message, epoch_, rank_, to, lane, selfSequences_[at]++, payload.bytes),
        payload, std::move(done));
  }
  Peer& target = peer(to);
  if (!target.gone.isOk()) return done(target.gone);
  if (target.out[at] == nullptr) {
    const uint32_t other = network_.ports_[ports_[index(to)]].process;
    target.out[at] = network_.makePipe(process(), other);
  }
  target.talked = true;
  const auto unfinished = std::make_shared<Unfinished>();
  unfinished->header =
      fabric::makeHeader(message, epoch_, rank_, to, lane, target.sequence[at]++, payload.bytes);
  unfinished->payload = payload;
  unfinished->done = std::move(done);
  target.unfinished.push_back(unfinished);
  SimulatedTime& time = network_.time_;
  target.written[at] = std::max(target.written[at], time.now() + time.upTo(kToWrite));
  time.at(target.written[at], [weak = weak_from_this(), to, unfinished] {
    if (const auto node = weak.lock()) node->write(to, unfinished);
  });
}

// The payload is read here, not when it was sent: its owner must have kept it until now.
void SimulatedNode::write(Rank to, const std::shared_ptr<Unfinished>& message) {
  if (!message->done || network_.processes_[process()].hasEnded) return;
  const auto parcel = std::make_shared<Parcel>();
  parcel->header = message->header;
  parcel->bytes.assign(message->payload.data, message->payload.data + message->payload.bytes);
  message->isWritten = true;
  Peer& target = peer(to);
  ++target.flying;
  loop_.post([self = shared_from_this(), to, message] {
    if (!message->done) return;
    self->peer(to).unfinished.remove(message);
    self->counters_.with([&](fabric::Counters& counters) {
      ++counters.messagesSent;
      counters.bytesSent += message->header.length;
    });
    std::exchange(message->done, nullptr)(base::ok());
    self->endIfFlushed();
  });
  const std::weak_ptr<SimulatedNode> weak = weak_from_this();
  network_.carry(target.out[static_cast<size_t>(message->header.lane)],
                 [network = &network_, weak, to, port = ports_[index(to)], parcel] {
                   ++network->messages_;
                   network->time_.note({index(parcel->header.source), index(to), port,
                                        static_cast<uint64_t>(parcel->header.lane),
                                        parcel->header.sequence, parcel->header.length});
                   network->deliver(
                       port, [parcel](SimulatedNode& node) { node.arrive(parcel); },
                       [weak, to] {
                         if (const auto node = weak.lock()) node->wasRefused(to);
                       });
                   if (const auto node = weak.lock()) node->wasTaken(to);
                 });
}

// The other host has taken a message. Its acknowledgement takes no time here.
void SimulatedNode::wasTaken(Rank by) {
  Peer& target = peer(by);
  if (target.flying > 0) --target.flying;
  lastTaken_ = loop_.now();
  if (state_ != State::kClosing) return;
  loop_.post([weak = weak_from_this()] {
    if (const auto node = weak.lock()) node->endIfFlushed();
  });
}

void SimulatedNode::wasRefused(Rank by) {
  network_.carry(network_.news_[network_.ports_[ports_[index(by)]].process][process()],
                 [weak = weak_from_this(), by] {
                   const auto node = weak.lock();
                   if (node == nullptr) return;
                   node->loop_.post([node, by] { node->peerLost(by, goneStatus()); });
                 });
}

// ---- The receiver's side ----

void SimulatedNode::arrive(const std::shared_ptr<Parcel>& parcel) {
  const Rank from = parcel->header.source;
  Peer& source = peer(from);
  const bool isLost = source.gone.code() == Code::kPeerLost;
  // A message for a connection that is closed here is answered with a reset.
  if (isLost || (state_ == State::kEnded && !saidGoodbye_)) {
    return tell(from, [self = rank_](SimulatedNode& node) {
      node.peerLost(self, {Code::kPeerLost, "connection reset by peer"});
    });
  }
  if (state_ == State::kEnded)
    return tell(from, [self = rank_](SimulatedNode& node) { node.peerLeft(self); });
  source.talked = true;
  source.lastHeard = loop_.now();
  source.in[static_cast<size_t>(parcel->header.lane)].inbox.push_back(parcel);
  pump(from, parcel->header.lane);
}

void SimulatedNode::pump(Rank from, Lane lane) {
  Incoming& in = peer(from).in[static_cast<size_t>(lane)];
  while (!in.inbox.empty() && !in.isWaiting && !in.slow && state_ != State::kEnded) {
    const auto parcel = in.inbox.front();
    auto answer = receiver_.onMessage(from, lane, parcel->header);
    if (answer.isOk() && answer->isLater) {
      in.isWaiting = true;
      return;
    }
    if (answer.isOk() && !in.inbox.empty()) {
      land(from, lane, *std::move(answer), *parcel);
      continue;
    }
    counters_.with([](fabric::Counters& counters) { counters.drops.count(wire::Drop::kRefused); });
    if (!in.inbox.empty()) in.inbox.pop_front();
  }
}

void SimulatedNode::land(Rank from, Lane lane, Landing landing, const Parcel& parcel) {
  Incoming& in = peer(from).in[static_cast<size_t>(lane)];
  const auto kept = in.inbox.front();
  if (const Status fits = fabric::checkLanding(landing, parcel.header); !fits.isOk()) {
    counters_.with([](fabric::Counters& counters) { counters.drops.count(wire::Drop::kNoRoom); });
    in.inbox.pop_front();
    return landing.done(fits);
  }
  SimulatedTime& time = network_.time_;
  if (parcel.bytes.empty() || time.below(kSlowOneOf) != 0) {
    in.inbox.pop_front();
    if (!parcel.bytes.empty())
      std::memcpy(landing.buffer.data, parcel.bytes.data(), parcel.bytes.size());
    count(parcel);
    return landing.done(base::ok());
  }
  std::memcpy(landing.buffer.data, parcel.bytes.data(), parcel.bytes.size() / 2);
  in.slow = std::move(landing);
  loop_.after(time.upTo(kSlowLanding), [weak = weak_from_this(), from, lane, kept] {
    if (const auto node = weak.lock()) node->finishLanding(from, lane, kept);
  });
}

void SimulatedNode::finishLanding(Rank from, Lane lane, const std::shared_ptr<Parcel>& parcel) {
  Incoming& in = peer(from).in[static_cast<size_t>(lane)];
  if (!in.slow || in.inbox.empty() || in.inbox.front() != parcel) return;  // it was ended
  const Landing landing = *std::exchange(in.slow, std::nullopt);
  in.inbox.pop_front();
  std::memcpy(landing.buffer.data, parcel->bytes.data(), parcel->bytes.size());
  count(*parcel);
  landing.done(base::ok());
  pump(from, lane);
}

void SimulatedNode::count(const Parcel& parcel) {
  counters_.with([&](fabric::Counters& counters) {
    ++counters.messagesReceived;
    counters.bytesReceived += parcel.bytes.size();
  });
}

void SimulatedNode::resume(Rank from, Lane lane) {
  if (index(from) >= peers_.size() || state_ == State::kEnded) return;
  if (from == rank_) return self_.resume(lane);
  if (std::exchange(peer(from).in[static_cast<size_t>(lane)].isWaiting, false)) pump(from, lane);
}

// ---- Ends ----

void SimulatedNode::giveUp(Rank rank, const Status& why) {
  if (index(rank) >= peers_.size() || rank == rank_ || state_ == State::kEnded) return;
  if (peer(rank).gone.isOk()) {
    tell(rank, [self = rank_](SimulatedNode& node) {
      node.peerLost(self, {Code::kPeerLost, "connection reset by peer"});
    });
  }
  peerLost(rank, why);
}

void SimulatedNode::peerLost(Rank rank, const Status& why) {
  Peer& lost = peer(rank);
  if (state_ == State::kEnded || !lost.gone.isOk()) return;
  const auto keep = shared_from_this();
  lost.gone = fabric::lostStatus(rank, why);
  endIncoming(lost, lost.gone);
  endOutgoing(lost, lost.gone);
  receiver_.onPeerLost(rank, lost.gone);
  endIfFlushed();
}

void SimulatedNode::peerLeft(Rank rank) {
  Peer& left = peer(rank);
  if (state_ == State::kEnded || !left.gone.isOk()) return;
  const auto keep = shared_from_this();
  left.gone = fabric::leftStatus(rank);
  endOutgoing(left, left.gone);
  receiver_.onPeerLeft(rank);
  endIfFlushed();
}

void SimulatedNode::endIncoming(Peer& source, const Status& why) {
  for (Incoming& in : source.in) {
    in.inbox.clear();
    in.isWaiting = false;
    if (const auto slow = std::exchange(in.slow, std::nullopt)) slow->done(why);
  }
}

void SimulatedNode::endOutgoing(Peer& target, const Status& why) {
  target.flying = 0;
  for (const auto& message : std::exchange(target.unfinished, {}))
    std::exchange(message->done, nullptr)(why);
}

void SimulatedNode::close(Done done) {
  if (state_ == State::kEnded) return done(base::ok());
  closers_.push_back(std::move(done));
  if (std::exchange(state_, State::kClosing) == State::kClosing) return;
  closeWatch_.start([this] { return lastTaken_; },
                    [weak = weak_from_this()](const Status& why) {
                      if (const auto node = weak.lock()) node->end(why);
                    });
  endIfFlushed();
}

void SimulatedNode::endIfFlushed() {
  if (state_ != State::kClosing || !self_.isEmpty()) return;
  for (const Peer& each : peers_) {
    if (each.flying > 0 || !each.unfinished.empty()) return;
  }
  end(base::ok());
}

void SimulatedNode::abort() {
  end(fabric::closedStatus());
}

void SimulatedNode::end(const Status& result) {
  const auto keep = shared_from_this();
  if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  saidGoodbye_ = result.code() != Code::kCancelled;
  closeWatch_.stop();
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    Peer& other = peers_[i];
    if (other.talked && other.gone.isOk() && Rank{i} != rank_) {
      // A rank that still waits for something of ours has lost it.
      const bool isInGoodOrder = saidGoodbye_ && other.flying == 0 && other.unfinished.empty();
      tell(Rank{i}, [self = rank_, isInGoodOrder](SimulatedNode& node) {
        isInGoodOrder ? node.peerLeft(self) : node.peerLost(self, goneStatus());
      });
    }
    endIncoming(other, fabric::closedStatus());
    endOutgoing(other, fabric::closedStatus());
  }
  self_.fail(fabric::closedStatus());
  for (const Done& done : std::exchange(closers_, {})) done(result);
}

void SimulatedNode::tellAllOfTheEnd() {
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i].talked || !peers_[i].gone.isOk() || state_ == State::kEnded) continue;
    tell(Rank{i}, [self = rank_](SimulatedNode& node) { node.peerLost(self, goneStatus()); });
  }
}

bool SimulatedNode::breakConnection(const Status& why) {
  std::vector<Rank> open;
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].talked && peers_[i].gone.isOk() && Rank{i} != rank_) open.push_back(Rank{i});
  }
  if (open.empty()) return false;
  const Rank other = open[network_.time_.below(open.size())];
  tell(other, [self = rank_, why](SimulatedNode& node) { node.peerLost(self, why); });
  loop_.post([node = shared_from_this(), other, why] { node->peerLost(other, why); });
  return true;
}

}  // namespace sluice::session
