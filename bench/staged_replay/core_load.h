// How busy each core of this machine was, from /proc/stat, with all programs that ran on it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <sluice/base/clock.h>

namespace sluice::bench {

// Samples from its beginning to its end, on a thread of its own.
class CoreLoad final {
 public:
  CoreLoad();
  ~CoreLoad();
  CoreLoad(const CoreLoad&) = delete;
  CoreLoad& operator=(const CoreLoad&) = delete;

  // Returns the busy share of each core in this time; empty if it was not sampled.
  std::vector<double> shares(TimePoint from, TimePoint to) const;

 private:
  struct Ticks {
    uint64_t busy = 0;
    uint64_t all = 0;
  };
  struct Sample {
    TimePoint at{};
    std::vector<Ticks> cores{};
  };
  static Sample read();
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool isEnding_ = false;
  std::vector<Sample> samples_;
  std::thread thread_;
};

}  // namespace sluice::bench
