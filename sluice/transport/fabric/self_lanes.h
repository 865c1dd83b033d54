// Messages of a rank to itself: copied once, never on the network. For engines; loop thread only.
#pragma once

#include <array>
#include <deque>

#include <sluice/base/mutex.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::fabric {

class SelfLanes final {
 public:
  SelfLanes(Receiver& receiver, base::Guarded<Counters>& counters)
      : receiver_(receiver), counters_(counters) {}

  void push(const wire::Header& header, ConstBuffer payload, Done done);
  void resume(Lane lane);
  void fail(const Status& why);  // ends all queued messages
  bool isEmpty() const;

 private:
  struct Item {
    wire::Header header;
    ConstBuffer payload;
    Done done;
  };
  struct Queue {
    std::deque<Item> items;
    bool isWaiting = false;  // the receiver said later
  };
  void pump(Queue& queue);

  Receiver& receiver_;
  base::Guarded<Counters>& counters_;
  std::array<Queue, wire::kLanes> queues_;
};

}  // namespace sluice::fabric
