// Simulated time: events run in order of time, first-in first-out at equal times, and the clock
// jumps from one to the next. One thread; nothing here allocates per event.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <vector>

#include <sluice/base/check.h>
#include <sluice/base/clock.h>

namespace sluice::sim {

class EventTarget {
 public:
  virtual ~EventTarget() = default;
  virtual void onEvent(uint64_t what) = 0;
};

class EventQueue final : public Clock {
 public:
  TimePoint now() const override { return now_; }

  // Calls target.onEvent(what) at `when`; a time in the past means now, after all that is due.
  // REQUIRES: `target` lives until then, or the queue runs no longer.
  void at(TimePoint when, EventTarget& target, uint64_t what) {
    const Event event{std::max(when, now_), order_++, &target, what};
    if (event.when == now_) {
      dueNow_.push_back(event);
    } else {
      later_.push_back(event);
      std::ranges::push_heap(later_, isLater);
    }
  }

  // Runs the next event; false if there is none until `end`, to which the clock then moves.
  bool runNext(TimePoint end = TimePoint::max()) {
    // Events of the heap that are due were made before the clock came here, so they go first.
    if (!later_.empty() && (dueNow_.empty() || later_.front().when == now_)) {
      if (later_.front().when > end) return moveTo(end);
      std::ranges::pop_heap(later_, isLater);
      const Event event = later_.back();
      later_.pop_back();
      return run(event);
    }
    if (dueNow_.empty()) return end == TimePoint::max() ? false : moveTo(end);
    const Event event = dueNow_.front();
    dueNow_.pop_front();
    return run(event);
  }

  uint64_t eventsRun() const { return run_; }

 private:
  struct Event {
    TimePoint when;
    uint64_t order;
    EventTarget* target;
    uint64_t what;
  };
  static bool isLater(const Event& a, const Event& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
  }

  bool run(const Event& event) {
    now_ = event.when;
    ++run_;
    event.target->onEvent(event.what);
    return true;
  }
  bool moveTo(TimePoint end) {
    now_ = end;
    return false;
  }

  TimePoint now_{};
  uint64_t order_ = 0;
  uint64_t run_ = 0;
  std::vector<Event> later_;  // a heap
  std::deque<Event> dueNow_;
};

// A fingerprint of all that happened in a simulation, in its order: two runs of one seed have the
// same. FNV-1a over 64-bit words.
class TraceHash final {
 public:
  void add(std::initializer_list<uint64_t> words) {
    for (const uint64_t word : words) {
      value_ ^= word;
      value_ *= 0x100000001b3U;
      value_ ^= value_ >> 29U;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace sluice::sim
