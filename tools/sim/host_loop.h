// The loop of a simulated host: one server for all of the host's work. A piece of work runs at the
// moment at which the server comes to it, and keeps the server busy for the time that it is
// charged; the next piece waits until then. Work that is charged nothing takes no time.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>

#include <sluice/base/loop.h>
#include <tools/sim/event_queue.h>

namespace sluice::sim {

class HostLoop final : public Loop, private EventTarget {
 public:
  // REQUIRES: `events` outlives this.
  explicit HostLoop(EventQueue& events) : events_(events) {}
  HostLoop(const HostLoop&) = delete;
  HostLoop& operator=(const HostLoop&) = delete;

  void post(Task task) override;
  TimerId after(Duration delay, Task task) override;
  void cancel(TimerId timer) override { timers_.erase(timer); }
  bool inLoop() const override { return isRunning_; }
  const Clock& clock() const override { return events_; }

  // Queues work that needs no task of its own: worker.onEvent(what).
  void queue(EventTarget& worker, uint64_t what);

  // Adds to the time that the server is busy.
  void charge(Duration time) { freeAt_ = freeAt() + time; }
  // Returns the moment at which everything that has run so far is done.
  TimePoint freeAt() const { return std::max(freeAt_, events_.now()); }
  // Returns the time that the server has been busy in all.
  Duration busy() const { return busy_; }

  // Drops all work and takes no more: the host is lost.
  void stop();

  // Runs the task at once, as if the server had come to it: for set-up and tear-down.
  void runNow(const Task& task);

 private:
  struct Work {
    EventTarget* worker;  // null: the first of tasks_
    uint64_t what;
  };
  void onEvent(uint64_t timer) override;
  void serve();
  void scheduleServing();

  EventQueue& events_;
  std::deque<Work> work_;
  std::deque<Task> tasks_;
  std::unordered_map<TimerId, Task> timers_;
  uint64_t nextTimer_ = 1;  // 0 is the server's own event
  TimePoint freeAt_{};
  Duration busy_{};
  bool isStopped_ = false;
  bool isScheduled_ = false;
  bool isRunning_ = false;
};

}  // namespace sluice::sim
