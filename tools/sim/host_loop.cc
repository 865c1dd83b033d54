#include <tools/sim/host_loop.h>

#include <utility>

namespace sluice::sim {

void HostLoop::stop() {
  isStopped_ = true;
  work_.clear();
  tasks_.clear();
  timers_.clear();
}

void HostLoop::post(Task task) {
  if (isStopped_) return;
  tasks_.push_back(std::move(task));
  work_.push_back({nullptr, 0});
  scheduleServing();
}

void HostLoop::queue(EventTarget& worker, uint64_t what) {
  if (isStopped_) return;
  work_.push_back({&worker, what});
  scheduleServing();
}

TimerId HostLoop::after(Duration delay, Task task) {
  const TimerId id{nextTimer_++};
  timers_.emplace(id, std::move(task));
  events_.at(now() + delay, *this, static_cast<uint64_t>(id));
  return id;
}

void HostLoop::scheduleServing() {
  if (isScheduled_ || isRunning_) return;
  isScheduled_ = true;
  events_.at(freeAt(), *this, 0);
}

void HostLoop::onEvent(uint64_t timer) {
  if (timer == 0) return serve();
  if (auto found = timers_.extract(TimerId{timer})) post(std::move(found.mapped()));
}

void HostLoop::serve() {
  isScheduled_ = false;
  isRunning_ = true;
  while (!work_.empty() && freeAt_ <= events_.now()) {
    const Work work = work_.front();
    work_.pop_front();
    const TimePoint begin = freeAt();
    if (work.worker != nullptr) {
      work.worker->onEvent(work.what);
    } else {
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
    busy_ += freeAt() - begin;
  }
  isRunning_ = false;
  if (!work_.empty()) scheduleServing();
}

void HostLoop::runNow(const Task& task) {
  const bool wasRunning = std::exchange(isRunning_, true);
  task();
  isRunning_ = wasRunning;
  if (!work_.empty()) scheduleServing();
}

}  // namespace sluice::sim
