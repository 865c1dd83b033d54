// The loop of a simulated process. The process may be stopped (its work waits, and its timers come
// late), go on, or end in the middle of everything. Belongs to one SimulatedTime; tests only.
#pragma once

#include <deque>
#include <unordered_map>

#include <sluice/base/loop.h>
#include <sluice/session/elastic/testing/simulated_time.h>

namespace sluice::session {

class ProcessLoop final : public Loop {
 public:
  explicit ProcessLoop(SimulatedTime& time) : time_(time) {}
  ProcessLoop(const ProcessLoop&) = delete;
  ProcessLoop& operator=(const ProcessLoop&) = delete;

  void post(Task task) override;
  TimerId after(Duration delay, Task task) override;
  void cancel(TimerId timer) override { timers_.erase(timer); }
  bool inLoop() const override { return isRunning_; }
  const Clock& clock() const override { return time_; }

  void stop() { isStopped_ = true; }
  void goOn();
  void end();  // no task runs any more; those that wait are destroyed when the loop is
  bool isStopped() const { return isStopped_; }
  bool hasEnded() const { return hasEnded_; }

  // Runs `task` at once, for the end of the simulation: objects of a process that was killed have to
  // be freed.
  void runNow(const Task& task);

 private:
  struct Work {
    Task task;      // null: that of the timer, if it was not cancelled
    TimerId timer;  // 0 if there is a task
  };
  void queue(Work work);
  void schedule();
  void serve();

  SimulatedTime& time_;
  std::deque<Work> work_;
  std::unordered_map<TimerId, Task> timers_;
  uint64_t nextTimer_ = 1;
  bool isScheduled_ = false;
  bool isRunning_ = false;
  bool isStopped_ = false;
  bool hasEnded_ = false;
};

}  // namespace sluice::session
