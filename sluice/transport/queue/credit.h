// Bounds the bytes that are with the network at once, per destination and, if wanted, over all
// destinations: a message that has been handed over cannot be recalled when a more urgent one turns
// up. Belongs to its owner's loop.
//
// A message larger than the window goes when nothing else is in flight to its destination;
// otherwise it could never go.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <sluice/base/ids.h>

namespace sluice::queue {

inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

class Credit final {
 public:
  explicit Credit(uint64_t window, uint64_t totalWindow = kUnlimited)
      : window_(window), total_{totalWindow, 0} {}

  bool admitsTo(Rank to, uint64_t bytes) const;
  bool admitsInTotal(uint64_t bytes) const { return total_.admits(bytes); }

  void acquire(Rank to, uint64_t bytes);  // REQUIRES: admitsTo(to, bytes) && admitsInTotal(bytes)
  void release(Rank to, uint64_t bytes);  // REQUIRES: that much was acquired and not yet released

  uint64_t inFlightTo(Rank to) const {
    return index(to) < perRank_.size() ? perRank_[index(to)].inFlight : 0;
  }
  uint64_t inFlight() const { return total_.inFlight; }

 private:
  struct Window {
    uint64_t window;
    uint64_t inFlight;
    // The test avoids a sum that could overflow: after a large message inFlight may exceed the
    // window.
    bool admits(uint64_t bytes) const {
      return inFlight == 0 || (inFlight < window && bytes <= window - inFlight);
    }
  };
  Window& at(Rank to);

  uint64_t window_;
  Window total_;
  std::vector<Window> perRank_;  // grows with the highest rank seen
};

}  // namespace sluice::queue
