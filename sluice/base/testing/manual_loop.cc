#include <sluice/base/testing/manual_loop.h>

#include <optional>
#include <utility>

namespace sluice::base {

void ManualLoop::post(Task task) {
  posted_.with([&](std::deque<Task>& tasks) { tasks.push_back(std::move(task)); });
}

TimerId ManualLoop::after(Duration delay, Task task) {
  return timers_.add(now() + delay, std::move(task));
}

void ManualLoop::cancel(TimerId timer) {
  timers_.cancel(timer);
}

bool ManualLoop::runOne() {
  auto task = posted_.with([](std::deque<Task>& tasks) -> std::optional<Task> {
    if (tasks.empty()) return std::nullopt;
    Task first = std::move(tasks.front());
    tasks.pop_front();
    return first;
  });
  if (!task) task = timers_.takeDue(now());
  if (!task) return false;
  const bool wasRunning = std::exchange(running_, true);
  (*task)();
  running_ = wasRunning;
  return true;
}

size_t ManualLoop::runReady() {
  size_t count = 0;
  while (runOne()) ++count;
  return count;
}

void ManualLoop::advance(Duration by) {
  const TimePoint end = now() + by;
  runReady();
  for (auto due = timers_.nextDue(); due && *due <= end; due = timers_.nextDue()) {
    clock_.advanceTo(*due);
    runReady();
  }
  clock_.advanceTo(end);
}

bool ManualLoop::advanceToNextTimer() {
  const auto due = timers_.nextDue();
  if (!due) return false;
  if (*due > now()) clock_.advanceTo(*due);
  runReady();
  return true;
}

}  // namespace sluice::base
