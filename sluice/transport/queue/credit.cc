#include <sluice/transport/queue/credit.h>

#include <sluice/base/check.h>

namespace sluice::queue {

bool Credit::admitsTo(Rank to, uint64_t bytes) const {
  // A destination that nothing was sent to has no entry yet, and all of its window is free.
  return index(to) >= perRank_.size() || perRank_[index(to)].admits(bytes);
}

void Credit::acquire(Rank to, uint64_t bytes) {
  SLUICE_DCHECK(admitsTo(to, bytes) && admitsInTotal(bytes), index(to), bytes);
  at(to).inFlight += bytes;
  total_.inFlight += bytes;
}

void Credit::release(Rank to, uint64_t bytes) {
  SLUICE_CHECK(inFlightTo(to) >= bytes, index(to), inFlightTo(to), bytes);
  at(to).inFlight -= bytes;
  total_.inFlight -= bytes;
}

Credit::Window& Credit::at(Rank to) {
  if (index(to) >= perRank_.size()) perRank_.resize(index(to) + size_t{1}, Window{window_, 0});
  return perRank_[index(to)];
}

}  // namespace sluice::queue
