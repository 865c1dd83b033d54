#include <sluice/transport/queue/egress.h>

namespace sluice::queue {

Egress::Egress(const Clock& clock, const EgressOptions& options)
    : clock_(clock), order_(options.order), credit_(options.window, options.totalWindow) {}

void Egress::push(const Send& send) {
  Peer& peer = at(send.to);
  peer.queue.push({send, arrivals_++, peer.inversion.mark(send.priority, clock_.now())});
  ++waiting_;
  relist(send.to);
}

std::optional<Handed> Egress::next() {
  if (eligible_.empty()) return std::nullopt;
  const Rank to = eligible_.begin()->second;
  Peer& peer = at(to);
  // A full total window stops smaller messages too, although some would fit. If they passed, a
  // large and more urgent message might never find room.
  if (!credit_.admitsInTotal(peer.queue.top().send.bytes)) return std::nullopt;
  const Waiting waiting = peer.queue.pop();
  --waiting_;
  credit_.acquire(to, waiting.send.bytes);
  const uint64_t ticket = tickets_++;
  peer.inversion.handed(ticket, waiting.send.priority, waiting.behindBefore, clock_.now());
  relist(to);
  return Handed{waiting.send, ticket};
}

void Egress::done(const Handed& handed) {
  const Rank to = handed.send.to;
  inversion_.record(at(to).inversion.completed(handed.ticket, clock_.now()));
  credit_.release(to, handed.send.bytes);
  relist(to);
}

std::vector<Send> Egress::drop(Rank to) {
  Peer& peer = at(to);
  // Messages that the network has are not dropped here: their credit comes back by done(),
  // which follows for every message.
  std::vector<Send> dropped;
  dropped.reserve(peer.queue.size());
  while (!peer.queue.empty()) dropped.push_back(peer.queue.pop().send);
  waiting_ -= dropped.size();
  relist(to);
  return dropped;
}

Egress::Peer& Egress::at(Rank to) {
  while (index(to) >= peers_.size()) peers_.push_back({SendQueue(order_)});
  return peers_[index(to)];
}

void Egress::relist(Rank to) {
  Peer& peer = peers_[index(to)];
  std::optional<Key> key;
  // A destination is listed iff it could send now, under the key of its most urgent message.
  // With the list kept at each change, next() looks only at its front, however many
  // destinations there are.
  if (!peer.queue.empty() && credit_.admitsTo(to, peer.queue.top().send.bytes))
    key = peer.queue.topKey();
  if (key == peer.listed) return;
  if (peer.listed) eligible_.erase({*peer.listed, to});
  if (key) eligible_.insert({*key, to});
  peer.listed = key;
}

}  // namespace sluice::queue
