// Stale synchronous parallel (Ho et al. 2013), as decisions over one slice. A worker's *clock* is
// the number of its steps whose updates the slice holds; the *slowest* is the least of all clocks.
// A worker at clock c may go on iff c <= slowest + bound, so that what it reads holds every update
// up to step c - bound - 1.
//
// Plain values: no network, no time. Belongs to its owner's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace sluice::shard {

inline constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();  // nobody ever waits

// True iff a worker at `clock` may go on. A worker may pass the `slowest` that it last heard of,
// which is never too large: then the answer is too careful at worst.
constexpr bool mayGoOn(uint64_t clock, uint64_t slowest, uint64_t bound) {
  return clock <= bound || clock - bound <= slowest;
}

// The server's side: the clocks of all workers, and the workers that wait.
class Staleness final {
 public:
  // Workers are numbered from 0. REQUIRES: at least one.
  Staleness(size_t workers, uint64_t bound)
      : bound_(bound), clocks_(workers), waits_(workers), isGone_(workers) {}

  uint64_t clock(size_t worker) const { return clocks_[worker]; }
  uint64_t slowest() const;  // of the workers that are not gone; 0 if all are gone
  bool isGone(size_t worker) const { return isGone_[worker]; }
  bool isWaiting(size_t worker) const { return waits_[worker]; }

  // Says that the slice holds the worker's next step. REQUIRES: the worker does not wait, and is
  // not gone.
  void advance(size_t worker);

  // Says that the worker goes on only with parameters that are fresh enough.
  void wait(size_t worker) { waits_[worker] = true; }

  // Says that the worker is gone: nobody waits for it any more, nor it for anybody. release()
  // returns the workers that this frees.
  void forget(size_t worker);

  // Returns the workers that waited and may go on now, in ascending order; they no longer wait.
  std::vector<size_t> release();

 private:
  const uint64_t bound_;
  std::vector<uint64_t> clocks_;
  std::vector<bool> waits_;
  std::vector<bool> isGone_;
};

}  // namespace sluice::shard
