// A Loop runs tasks one after another on one thread. An object that belongs to a loop is touched
// only by tasks of that loop, so it needs no locks; other threads post to it.
//
// There are two kinds: EpollLoop waits for sockets and real time, ManualLoop is stepped by a test
// or a simulation.
#pragma once

#include <cstdint>
#include <functional>

#include <sluice/base/clock.h>

namespace sluice::base {

using Task = std::function<void()>;
enum class TimerId : uint64_t {};

class Loop {
 public:
  virtual ~Loop() = default;

  // Runs `task` on the loop's thread, after every task posted before it from the same thread. Any
  // thread. A task posted after the loop has ended, or in a forked child, is destroyed without
  // running.
  virtual void post(Task task) = 0;

  // Runs `task` once, `delay` from now. Loop thread only (post first from elsewhere).
  virtual TimerId after(Duration delay, Task task) = 0;

  // Cancels a timer. A timer that has run or been cancelled already is ignored. Loop thread only.
  virtual void cancel(TimerId timer) = 0;

  // True iff the caller is on the loop's thread. Any thread.
  virtual bool inLoop() const = 0;

  // True iff this process was forked after the loop was made: no task will run here (fork.h). Any
  // thread.
  virtual bool isInherited() const { return false; }

  virtual const Clock& clock() const = 0;
  TimePoint now() const { return clock().now(); }
};

}  // namespace sluice::base

namespace sluice {
using base::Loop;
using base::Task;
using base::TimerId;
}  // namespace sluice
