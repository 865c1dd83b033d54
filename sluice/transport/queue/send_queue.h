// Chooses the message that goes next. Belongs to its owner's loop.
#pragma once

#include <algorithm>
#include <vector>

#include <sluice/base/check.h>
#include <sluice/transport/queue/send.h>

namespace sluice::queue {

class SendQueue final {
 public:
  explicit SendQueue(SendOrder order) : order_(order) {}

  void push(const Waiting& waiting) {
    heap_.push_back(waiting);
    std::ranges::push_heap(heap_, LessUrgent{order_});
  }
  // REQUIRES, for both: !empty()
  const Waiting& top() const { return heap_.front(); }
  Waiting pop() {
    SLUICE_DCHECK(!empty());
    std::ranges::pop_heap(heap_, LessUrgent{order_});
    const Waiting next = heap_.back();
    heap_.pop_back();
    return next;
  }
  SendKey topKey() const { return keyOf(order_, top()); }  // REQUIRES: !empty()

  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }

 private:
  struct LessUrgent {
    SendOrder order;
    bool operator()(const Waiting& a, const Waiting& b) const {
      return keyOf(order, a) > keyOf(order, b);
    }
  };

  SendOrder order_;
  std::vector<Waiting> heap_;
};

}  // namespace sluice::queue
