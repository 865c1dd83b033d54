// Runs tasks off the loop that may take their time, and may wait for each other: what a program has
// hung on a future runs Python, and may wait there for the next collective. So there are as many
// threads as there are tasks at once. Any thread may post.
#pragma once

#include <deque>
#include <functional>
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

  // Returns when everything posted has run. Not from a task.
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
