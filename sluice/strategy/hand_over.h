// The gradients of a step on their way into a strategy that can take nothing back: where updates
// wait for the training thread's word, they wait here. Belongs to the fabric's loop.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <sluice/base/check.h>
#include <sluice/strategy/strategy.h>

namespace sluice::strategy {

struct Handed {
  TensorId tensor{};
  Step step{};
  bool hasGradient = false;
};

class HandOver final {
 public:
  using Begin = std::function<void(const Handed&)>;
  HandOver(const Rooms& rooms, Begin begin)
      : loop_(rooms.fabric.loop()),
        waitsForWord_(rooms.updatesWaitForWord),
        begin_(std::move(begin)) {}

  void add(const Handed& handed) {
    SLUICE_DCHECK(loop_.inLoop());
    if (waitsForWord_) {
      held_.push_back(handed);
    } else {
      begin_(handed);
    }
  }

  // What waits for decide(), in the order of backward.
  std::vector<Handed> take() {
    SLUICE_DCHECK(loop_.inLoop());
    return std::exchange(held_, {});
  }

 private:
  Loop& loop_;
  const bool waitsForWord_;
  const Begin begin_;
  std::vector<Handed> held_;
};

}  // namespace sluice::strategy
