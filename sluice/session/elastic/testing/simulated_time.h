// The one clock and the one source of chance of a simulated job: tasks run in order of time, those
// of one moment in the order in which they were made, and the clock jumps from one to the next. Two
// runs of one seed do the same, and hash() says so. One thread; tests only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/base/random.h>

namespace sluice::session {

class SimulatedTime final : public Clock {
 public:
  explicit SimulatedTime(uint64_t seed) : seed_(seed) {}
  SimulatedTime(const SimulatedTime&) = delete;
  SimulatedTime& operator=(const SimulatedTime&) = delete;

  TimePoint now() const override { return now_; }

  // A time in the past means now.
  void at(TimePoint when, Task task) {
    events_.push_back({std::max(when, now_), order_++, std::move(task)});
    std::ranges::push_heap(events_, isLater);
  }
  void after(Duration delay, Task task) { at(now_ + delay, std::move(task)); }

  // Runs the next task; false if none is due by `end`.
  bool runNext(TimePoint end) {
    if (events_.empty() || events_.front().when > end) return false;
    std::ranges::pop_heap(events_, isLater);
    const Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.when;
    ++eventsRun_;
    event.task();
    return true;
  }

  // Destroys all tasks that have not run.
  void clear() { events_.clear(); }

  // Chance.
  uint64_t draw() { return base::splitmix64(seed_, draws_++); }
  uint64_t below(uint64_t limit) { return draw() % limit; }
  bool chance(double share) { return base::fromZeroToOne(draw()) < share; }
  Duration upTo(Duration longest) {
    return Duration(static_cast<Duration::rep>(below(static_cast<uint64_t>(longest.count()) + 1)));
  }
  Duration between(Duration shortest, Duration longest) {
    return shortest + upTo(longest - shortest);
  }

  // Adds something that has happened to the hash, with the time. FNV-1a over 64-bit words.
  void note(std::initializer_list<uint64_t> words) {
    add(static_cast<uint64_t>(now_.time_since_epoch().count()));
    for (const uint64_t word : words) add(word);
  }
  uint64_t hash() const { return hash_; }
  uint64_t eventsRun() const { return eventsRun_; }

 private:
  struct Event {
    TimePoint when;
    uint64_t order;
    Task task;
  };
  static bool isLater(const Event& a, const Event& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
  }
  void add(uint64_t word) {
    hash_ ^= word;
    hash_ *= 0x100000001b3U;
    hash_ ^= hash_ >> 29U;
  }

  const uint64_t seed_;
  TimePoint now_{std::chrono::seconds(1000)};
  uint64_t order_ = 0;
  uint64_t draws_ = 0;
  uint64_t eventsRun_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325U;
  std::vector<Event> events_;  // a heap
};

}  // namespace sluice::session
