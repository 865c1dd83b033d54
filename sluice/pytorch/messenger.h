// Runs tasks that may take longer than the loop allows, and that may wait for each other: a
// callback on a future runs Python, and may wait there for the next collective. So there are as
// many threads as there are tasks at once. Any thread may post.
#pragma once

#include <deque>
#include <thread>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/base/mutex.h>

namespace sluice::pytorch {

class Messenger final {
 public:
  Messenger() = default;
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;
  ~Messenger() { end(); }

  // REQUIRES: end() has not been called
  void post(Task task);

  // Returns when all posted tasks have run. REQUIRES: the caller is not a task.
  void end();

 private:
  void work();

  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<Task> tasks_ SLUICE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ SLUICE_GUARDED_BY(mutex_);
  size_t idle_ SLUICE_GUARDED_BY(mutex_) = 0;
  bool isEnding_ SLUICE_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::pytorch
