#include <sluice/data/collective/paced_fabric.h>

#include <algorithm>
#include <utility>

#include <sluice/base/check.h>

namespace sluice::collective {

bool PacedFabric::mayGo(const Peer& peer, uint64_t call, uint64_t bytes) const {
  return peer.isReleased || call < peer.made || peer.early + earlyCost(bytes) <= budget_;
}

void PacedFabric::pass(Rank to, Peer& peer, const Waiting& one) {
  const uint64_t call = index(one.message.step);
  if (call >= peer.made) {
    peer.early += earlyCost(one.payload.bytes);
    peer.sent[call] += earlyCost(one.payload.bytes);
  }
  under_.send(to, fabric::Lane::kBulk, one.message, one.payload, one.done);
}

void PacedFabric::send(Rank to, fabric::Lane lane, const fabric::Message& message,
                       fabric::ConstBuffer payload, fabric::Done done) {
  SLUICE_DCHECK(loop().inLoop());
  if (lane != fabric::Lane::kBulk || index(to) >= peers_.size())
    return under_.send(to, lane, message, payload, std::move(done));
  Peer& peer = peers_[index(to)];
  const uint64_t call = index(message.step);
  // Messages for calls that the receiver has made never wait. Early ones keep their order among
  // themselves: a small one that slipped past a large one would let the large one starve.
  Waiting one{message, payload, std::move(done)};
  const bool isEarly = call >= peer.made && !peer.isReleased;
  if ((!isEarly || peer.waiting.empty()) && mayGo(peer, call, payload.bytes)) {
    pass(to, peer, one);
  } else {
    peer.waiting.push_back(std::move(one));
  }
  askIfNeeded(to, peer);
}

// Asks before the limit is reached, so that the answer comes in time.
void PacedFabric::askIfNeeded(Rank to, Peer& peer) {
  if (peer.isAsked || (peer.waiting.empty() && peer.early <= budget_ / 2)) return;
  // The question is about the earliest call that has not been made, as far as this rank knows:
  // as soon as the receiver makes that one, its answer frees the most.
  uint64_t first =
      peer.sent.empty() ? index(peer.waiting.front().message.step) : peer.sent.begin()->first;
  for (const Waiting& one : peer.waiting) first = std::min(first, index(one.message.step));
  peer.isAsked = true;
  under_.send(to, fabric::Lane::kControl, {.step = Step{first}, .stage = kAsksForCall}, {},
              [](const Status&) {});  // the receiver is told of a lost rank
}

void PacedFabric::hasMade(Rank rank, uint64_t calls) {
  SLUICE_DCHECK(loop().inLoop());
  Peer& peer = peers_[index(rank)];
  if (calls <= peer.made) return;
  peer.made = calls;
  peer.isAsked = false;
  // Bytes for calls that the peer has made have their places there, so they no longer count
  // against its memory.
  while (!peer.sent.empty() && peer.sent.begin()->first < calls) {
    peer.early -= peer.sent.begin()->second;
    peer.sent.erase(peer.sent.begin());
  }
  bool isFull = false;  // later messages do not overtake the first that has to wait
  for (auto next = peer.waiting.begin(); next != peer.waiting.end();) {
    const auto one = next++;
    const uint64_t call = index(one->message.step);
    if (call >= peer.made && (isFull || !mayGo(peer, call, one->payload.bytes))) {
      isFull = true;
      continue;
    }
    pass(rank, peer, *one);
    peer.waiting.erase(one);
  }
  askIfNeeded(rank, peer);
}

void PacedFabric::release(Rank rank) {
  Peer& peer = peers_[index(rank)];
  peer.isReleased = true;
  for (const Waiting& one : std::exchange(peer.waiting, {})) pass(rank, peer, one);
}

void PacedFabric::fail(const Status& why) {
  for (Peer& peer : peers_) {
    for (const Waiting& one : std::exchange(peer.waiting, {})) one.done(why);
  }
}

std::set<Rank> PacedFabric::waitingFor(uint64_t call) const {
  std::set<Rank> ranks;
  for (uint32_t r = 0; r < peers_.size(); ++r) {
    for (const Waiting& one : peers_[r].waiting) {
      if (index(one.message.step) == call) ranks.insert(Rank{r});
    }
  }
  return ranks;
}

}  // namespace sluice::collective
