// Priority inversion time of the messages to one destination: how long a ready, more urgent message
// waited behind less urgent ones that were already with the network.
//
// Exactly: the inversion time of a message u is the total time between u being ready and u being
// completed during which at least one message v to the same destination is *in flight* (handed to
// the network, not completed), where v was handed over before u and is less urgent, that is, has a
// greater priority number. Messages of the same layer never invert each other; steps are not told
// apart. While u is in the queue, every message in flight was handed over before it; once u is
// handed over too, only those ahead of it still count.
//
// It does not depend on the order in use: under fifo it tells what priority would save, under
// priority what the bytes beyond recall still cost. Belongs to its owner's loop; every call costs
// O(log of what is in flight and of the number of layers), except a completion while something is
// blocked in flight: O(in flight).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <sluice/base/clock.h>

namespace sluice::queue {

// Sums over priorities, with additions and queries in O(log n): a Fenwick tree that grows.
class TimeByPriority final {
 public:
  void add(uint32_t priority, Duration d);
  Duration above(uint32_t priority) const;  // the sum for greater priority numbers

 private:
  std::vector<Duration> tree_{
      Duration::zero()};  // 1-based; the size without slot 0 is a power of two, or 0
  Duration total_{};
};

class Inversion final {
 public:
  // Call it when a message becomes ready, and pass the result to handed(). Times never go back.
  Duration mark(uint32_t priority, TimePoint now);
  // Tickets rise from call to call.
  void handed(uint64_t ticket, uint32_t priority, Duration mark, TimePoint now);
  // Returns the inversion time of the message. REQUIRES: it was handed over and has not been
  // completed.
  Duration completed(uint64_t ticket, TimePoint now);

 private:
  struct InFlight {
    uint64_t ticket;
    uint32_t priority;
    uint32_t ahead;  // less urgent messages handed over before and still in flight
    TimePoint handedAt;
    Duration inverted;
  };
  void advance(TimePoint now);

  std::vector<InFlight> inFlight_;                   // by ticket
  std::map<uint32_t, uint32_t> inFlightByPriority_;  // number of messages
  uint32_t blocked_ = 0;                             // messages of inFlight_ with something ahead
  // For each priority number m, the time during which m was the least urgent number in flight.
  TimeByPriority leastUrgent_;
  TimePoint last_{};
};

}  // namespace sluice::queue
