#include <sluice/transport/queue/inversion.h>

#include <algorithm>

#include <sluice/base/check.h>

namespace sluice::queue {

void TimeByPriority::add(uint32_t priority, Duration d) {
  const size_t slot = size_t{priority} + 1;
  while (tree_.size() <= slot) {
    // Makes the tree twice as wide: only the new top node covers anything that has been added, and
    // it covers all.
    const size_t width = tree_.size() == 1 ? 1 : 2 * (tree_.size() - 1);
    tree_.resize(width + 1, Duration::zero());
    tree_[width] = total_;
  }
  // i & (~i + 1) is the lowest set bit of i: node i holds the sum of as many slots, up to slot
  // i.
  for (size_t i = slot; i < tree_.size(); i += i & (~i + 1)) tree_[i] += d;
  total_ += d;
}

Duration TimeByPriority::above(uint32_t priority) const {
  Duration upTo{};
  for (size_t i = std::min(size_t{priority} + 1, tree_.size() - 1); i > 0; i &= i - 1)
    upTo += tree_[i];
  return total_ - upTo;
}

void Inversion::advance(TimePoint now) {
  // Time counts for the least urgent message in flight: whatever was more urgent had something
  // less urgent before it meanwhile. above() then gives the time of all that is less urgent
  // than a message, in one sum.
  if (!inFlightByPriority_.empty())
    leastUrgent_.add(inFlightByPriority_.rbegin()->first, now - last_);
  last_ = now;
}

Duration Inversion::mark(uint32_t priority, TimePoint now) {
  advance(now);
  return leastUrgent_.above(priority);
}

void Inversion::handed(uint64_t ticket, uint32_t priority, Duration mark, TimePoint now) {
  SLUICE_DCHECK(inFlight_.empty() || inFlight_.back().ticket < ticket, ticket);
  advance(now);
  // While it was queued, every less urgent message in flight was ahead of it, which the tree
  // knows. From here on only those that are ahead now count, so they are counted once and
  // struck off as they complete.
  uint32_t ahead = 0;
  for (auto it = inFlightByPriority_.upper_bound(priority); it != inFlightByPriority_.end(); ++it) {
    ahead += it->second;
  }
  if (ahead > 0) ++blocked_;
  ++inFlightByPriority_[priority];
  inFlight_.push_back({ticket, priority, ahead, now, leastUrgent_.above(priority) - mark});
}

Duration Inversion::completed(uint64_t ticket, TimePoint now) {
  advance(now);
  const auto found = std::ranges::lower_bound(inFlight_, ticket, {}, &InFlight::ticket);
  SLUICE_CHECK(found != inFlight_.end() && found->ticket == ticket, ticket);
  InFlight done = *found;
  const auto unblock = [&](InFlight& message) {
    message.inverted += now - message.handedAt;
    --blocked_;
  };
  if (done.ahead > 0) unblock(done);
  const auto count = inFlightByPriority_.find(done.priority);
  if (--count->second == 0) inFlightByPriority_.erase(count);
  auto behind = inFlight_.erase(found);
  // Only while some message in flight is blocked must those behind be looked at. Under priority
  // order that is rare.
  for (; blocked_ > 0 && behind != inFlight_.end(); ++behind) {
    if (behind->priority < done.priority && --behind->ahead == 0) unblock(*behind);
  }
  return done.inverted;
}

}  // namespace sluice::queue
