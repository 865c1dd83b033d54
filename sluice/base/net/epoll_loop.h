// The real loop: waits for file descriptors, timers and posted tasks with epoll. It never polls:
// with nothing to do it sleeps in the kernel.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/base/mutex.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>
#include <sluice/base/timers.h>

namespace sluice::net {

// Called with the epoll events (EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP) that are ready.
using FdHandler = std::function<void(uint32_t events)>;

#ifndef NDEBUG
// Changes every task before a loop takes it, if set: for tests that follow a message from task to
// task. Debug builds only.
inline std::atomic<Task (*)(Task)> taskHook{nullptr};
#endif

class EpollLoop final : public Loop {
 public:
  // If the process has no descriptors to spare, status() says so and the loop has ended before it
  // began. REQUIRES: `clock` outlives the loop and moves like the steady clock (epoll waits in real
  // time).
  explicit EpollLoop(const Clock& clock);
  EpollLoop();
  ~EpollLoop() override;
  EpollLoop(const EpollLoop&) = delete;
  EpollLoop& operator=(const EpollLoop&) = delete;

  void post(Task task) override;
  TimerId after(Duration delay, Task task) override;
  void cancel(TimerId timer) override;
  bool inLoop() const override;
  bool isInherited() const override { return mark_.isInherited(); }
  const Clock& clock() const override { return clock_; }

  // True iff no task will run here any more. Any thread.
  bool hasEnded() const;

  // Ok iff the loop could be made. Any thread.
  const Status& status() const { return status_; }

  // Watches `fd` for `events` until unwatch(fd). Calling it again for the same fd replaces events
  // and handler. Loop thread only, or before run(). The handler may unwatch any fd, its own too. An
  // fd that cannot be watched, because the program has closed it or the system is out of memory, is
  // reported to its handler as EPOLLERR | EPOLLHUP. REQUIRES: unwatch(fd) before close(fd).
  void watch(int fd, uint32_t events, FdHandler handler);
  void unwatch(int fd);

  // Becomes the loop's thread until stop(). Tasks posted before stop() was called still run.
  void run();

  // Ends run() after the tasks that are posted already. Any thread; final.
  void stop();

  // Returns for how long the loop has owed a turn, because a task, a timer or a handler keeps it
  // busy, or because the machine does not let it run though a timer is due. Returns zero while the
  // loop sleeps and nothing is due, and while nobody runs it. Any thread, without a lock.
  Duration overdue() const;

 private:
  Status begin();
  void end();
  void runPosted();
  void dispatch(uint64_t key, uint32_t events);
  void runDueTimers();
  int waitMilliseconds() const;
  void oweTurnFrom(TimePoint when) { owedFrom_.store(when.time_since_epoch().count()); }

  struct Watch {
    FdHandler handler;
    uint64_t
        generation;  // tells an event for a closed fd from one for its successor of the same number
  };
  struct Inbox {
    std::vector<Task> tasks;
    bool closed = false;
  };

  const Clock& clock_;
  const base::ProcessMark mark_;
  const Fd epoll_;
  const Fd wakeUp_;  // eventfd: written by post() and stop()

  // Any thread.
  base::Guarded<Inbox> inbox_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::thread::id> thread_{};
  // While the loop works: the time since which it has worked. While it sleeps: the time at which
  // its next timer is due.
  std::atomic<Duration::rep> owedFrom_{TimePoint::max().time_since_epoch().count()};

  // Loop thread only.
  base::Timers timers_;
  std::unordered_map<int, std::shared_ptr<Watch>> watches_;
  uint64_t nextGeneration_ = 1;

  const Status status_;  // last: making it needs the others
};

// A thread that runs an EpollLoop from construction to destruction. In a forked child, which does
// not have that thread, destruction does nothing.
class LoopThread final {
 public:
  explicit LoopThread(std::string_view threadName);
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  EpollLoop& loop() { return parts_->loop; }

  // Ok iff the loop and its thread could be made.
  const Status& status() const { return parts_->status; }

 private:
  struct Parts {
    EpollLoop loop;
    std::thread thread;
    Status status;
  };
  const base::HomePtr<Parts> parts_;
};

}  // namespace sluice::net
