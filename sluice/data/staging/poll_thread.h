// A thread that moves copies forward. While some are under way it asks the device again and again,
// with growing pauses; otherwise it sleeps until somebody wakes it.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include <sluice/base/clock.h>
#include <sluice/base/mutex.h>
#include <sluice/base/status.h>

namespace sluice::staging {

class PollThread final {
 public:
  // The work, on the thread.
  struct Work {
    std::function<Result<bool>()> advance;         // returns whether anything has changed
    std::function<bool()> isIdle;                  // true: only a wake() can change anything
    std::function<void(const Status&)> onFailure;  // after an error of advance() the thread ends
  };

  PollThread(std::string_view name, Work work);
  ~PollThread() { stop(); }
  PollThread(const PollThread&) = delete;
  PollThread& operator=(const PollThread&) = delete;

  // Says that there is work. Any thread.
  void wake();

  // Ends the thread. A second call does nothing. Not on the thread itself.
  void stop();

 private:
  void run();

  const Work work_;
  base::Mutex mutex_;
  base::Condition changed_;
  bool isAwake_ SLUICE_GUARDED_BY(mutex_) = false;
  bool isEnding_ SLUICE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::staging
