#include <sluice/pytorch/messenger.h>

#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/base/thread.h>

namespace sluice::pytorch {

void Messenger::post(Task task) {
  base::Lock lock(mutex_);
  SLUICE_CHECK(!isEnding_);
  tasks_.push_back(std::move(task));
  // Tasks wait for each other, so a task that finds no idle thread would wait for a task that
  // waits for it. A new thread is therefore the rule, and a late turn only the way out when the
  // system has no threads left.
  try {
    if (idle_ < tasks_.size())
      threads_.push_back(base::startThread("sluice-calls", [this] { work(); }));
  } catch (const std::system_error&) {
    if (!threads_.empty()) return;  // an existing thread takes the task in its turn
    tasks_.pop_back();
    throw;
  }
  changed_.notifyAll();
}

void Messenger::work() {
  // Nothing depends on this time: a thread that finds nothing to do waits again.
  constexpr auto kPatience = std::chrono::hours(1);
  while (true) {
    std::optional<Task> task;
    {
      base::Lock lock(mutex_);
      ++idle_;
      changed_.waitUntil(
          mutex_, std::chrono::steady_clock::now() + kPatience,
          [this]() SLUICE_NO_THREAD_SAFETY_ANALYSIS { return isEnding_ || !tasks_.empty(); });
      --idle_;
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
      } else if (isEnding_) {
        return;
      }
    }
    if (task) (*task)();
  }
}

void Messenger::end() {
  std::vector<std::thread> threads;
  {
    base::Lock lock(mutex_);
    // The threads are joined outside the lock, which the last tasks still need. Threads leave
    // only when no task is left, so everything that was posted runs.
    isEnding_ = true;
    threads.swap(threads_);
    changed_.notifyAll();
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace sluice::pytorch
