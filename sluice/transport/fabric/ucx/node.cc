#include <sluice/transport/fabric/ucx/node.h>

#include <sys/epoll.h>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::fabric::ucx {

Node::Node(UcxOptions options, net::EpollLoop& loop, std::shared_ptr<Worker> worker, int eventFd)
    : options_(std::move(options)),
      headerKey_(options_.jobKey.derive(secret::Purpose::kWireHeader)),
      loop_(loop),
      worker_(std::move(worker)),
      eventFd_(eventFd),
      peers_(options_.worldSize) {}

void Node::start(Receiver& receiver, FindUcxAddress findAddress) {
  SLUICE_DCHECK(loop_.inLoop());
  receiver_ = &receiver;
  findAddress_ = std::move(findAddress);
  listen();
  loop_.watch(eventFd_, EPOLLIN, [this](uint32_t) { drive(); });
  driveSoon();
}

Counters Node::counters() const {
  return counters_.with([](const Counters& counters) { return counters; });
}

std::optional<TimePoint> Node::lastHeard(Rank rank) const {
  SLUICE_DCHECK(loop_.inLoop());
  SLUICE_CHECK(index(rank) < peers_.size(), index(rank), peers_.size());
  const Peer* known = findPeer(rank);
  return known == nullptr ? std::nullopt : known->lastHeard;
}

Peer& Node::peer(Rank rank) {
  auto& place = peers_[index(rank)];
  if (!place) place = std::make_unique<Peer>(rank, options_.windowBytes);
  return *place;
}

Endpoint* Node::endpoint(Peer& peer, Lane lane) {
  PeerLane& stream = peer.stream(lane);
  if (stream.endpoint || !peer.gone.isOk()) return stream.endpoint.get();
  // The control lane connects first, on both sides: UCX pairs the n-th endpoint of one with the
  // n-th of the other on one connection, and the answer to a first message then finds its
  // connection made.
  if (lane != Lane::kControl && endpoint(peer, Lane::kControl) == nullptr) return nullptr;
  auto address = findAddress_(peer.rank);
  auto made = address.isOk() ? Endpoint::connect(worker_, *address,
                                                 [this, rank = peer.rank](ucs_status_t status) {
                                                   breaks(rank, status);
                                                 })
                             : Result<std::unique_ptr<Endpoint>>(address.status());
  if (!made.isOk()) {
    peerLost(peer, made.status());
    return nullptr;
  }
  counters_.with([](Counters& counters) { ++counters.connections; });
  stream.endpoint = *std::move(made);
  lastConnected_ = loop_.now();
  return stream.endpoint.get();
}

void Node::send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (state_ != State::kOpen) return done(closedStatus());
  if (const Status status = checkSend(to, peers_.size(), message, payload); !status.isOk())
    return done(status);
  Peer& target = peer(to);
  if (!target.gone.isOk()) return done(target.gone);
  PeerLane& stream = target.stream(lane);
  const wire::Header header = makeHeader(message, options_.epoch, options_.rank, to, lane,
                                         stream.nextToSend++, payload.bytes);
  // A message to oneself goes through the same queue as one from the network, so that order and
  // "later" work alike; UCX never sees it.
  if (isSelf(target)) {
    stream.waiting.emplace(
        header.sequence,
        Arrived{.header = header, .data = payload.data, .senderDone = std::move(done)});
    offerWaiting(target, lane);
  } else {
    stream.queue.push_back({header, payload, std::move(done)});
    startSends(target, lane);
  }
  driveSoon();
}

void Node::resume(Rank from, Lane lane) {
  SLUICE_DCHECK(loop_.inLoop());
  if (index(from) >= peers_.size() || state_ == State::kEnded) return;
  Peer* source = findPeer(from);
  if (source == nullptr || !std::exchange(source->stream(lane).isStopped, false)) return;
  offerWaiting(*source, lane);
  driveSoon();
}

void Node::giveUp(Rank rank, const Status& why) {
  SLUICE_DCHECK(loop_.inLoop());
  if (index(rank) >= peers_.size() || rank == options_.rank || state_ == State::kEnded) return;
  Peer& lost = peer(rank);
  tellGivenUp(lost);
  peerLost(lost, why);
  driveSoon();
}

}  // namespace sluice::fabric::ucx
