// A loop that a test steps: no task runs until the test says so, and time stands still in between.
#pragma once

#include <deque>
#include <optional>

#include <sluice/base/loop.h>
#include <sluice/base/mutex.h>
#include <sluice/base/testing/manual_clock.h>
#include <sluice/base/timers.h>

namespace sluice::base {

class ManualLoop final : public Loop {
 public:
  void post(Task task) override;
  TimerId after(Duration delay, Task task) override;
  void cancel(TimerId timer) override;
  bool inLoop() const override { return running_; }
  const Clock& clock() const override { return clock_; }

  // Runs one posted task or due timer; false if nothing was due.
  bool runOne();

  // Runs until nothing is due at the present time; returns how many tasks ran.
  size_t runReady();

  // Moves time on by `by`, stopping at each timer on the way.
  void advance(Duration by);

  // Lets time pass while nothing runs, as when a process is stopped and continued: timers come
  // late.
  void stall(Duration by) { clock_.advance(by); }

  // Returns when the next timer is due; empty without timers.
  std::optional<TimePoint> nextDue() const { return timers_.nextDue(); }

  // Moves time to the next timer and runs it; false without timers. For simulations.
  bool advanceToNextTimer();

 private:
  ManualClock clock_;
  Guarded<std::deque<Task>> posted_;
  Timers timers_;
  bool running_ = false;
};

}  // namespace sluice::base
