#include <sluice/session/elastic/testing/process_loop.h>

#include <chrono>
#include <utility>

namespace sluice::session {
namespace {

using namespace std::chrono_literals;

// A process gets its turn soon, and now and then late.
constexpr Duration kSoon = 20us;
constexpr Duration kLate = 4ms;
constexpr uint64_t kSeldom = 64;
constexpr uint64_t kMostAtOnce = 4;

}  // namespace

void ProcessLoop::post(Task task) {
  if (!hasEnded_) queue({std::move(task), TimerId{0}});
}

TimerId ProcessLoop::after(Duration delay, Task task) {
  const TimerId id{nextTimer_++};
  timers_.emplace(id, std::move(task));
  time_.after(delay, [this, id] {
    if (!hasEnded_ && timers_.contains(id)) queue({nullptr, id});
  });
  return id;
}

void ProcessLoop::queue(Work work) {
  work_.push_back(std::move(work));
  schedule();
}

void ProcessLoop::schedule() {
  if (isScheduled_ || isRunning_ || isStopped_ || hasEnded_ || work_.empty()) return;
  isScheduled_ = true;
  time_.after(time_.upTo(time_.below(kSeldom) == 0 ? kLate : kSoon), [this] { serve(); });
}

void ProcessLoop::serve() {
  isScheduled_ = false;
  isRunning_ = true;
  for (uint64_t left = 1 + time_.below(kMostAtOnce); left > 0 && !work_.empty(); --left) {
    if (isStopped_ || hasEnded_) break;
    Work work = std::move(work_.front());
    work_.pop_front();
    if (!work.task) {
      auto timer = timers_.extract(work.timer);
      if (timer.empty()) continue;  // cancelled since it was due
      work.task = std::move(timer.mapped());
    }
    work.task();
  }
  isRunning_ = false;
  schedule();
}

void ProcessLoop::goOn() {
  isStopped_ = false;
  schedule();
}

void ProcessLoop::end() {
  hasEnded_ = true;
}

void ProcessLoop::runNow(const Task& task) {
  const bool wasRunning = std::exchange(isRunning_, true);
  task();
  isRunning_ = wasRunning;
}

}  // namespace sluice::session
