// Measures how busy a host's link is over time, in steps of 10 ms: the papers' figures 8 and 9.
#pragma once

#include <thread>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/mutex.h>
#include <tools/bench/interface_counters.h>

namespace sluice::bench {

struct Utilisation {
  double stepSeconds = 0;
  std::vector<double> sentBits{};      // per second, one value per step
  std::vector<double> receivedBits{};  // the same
};

// Reads the counters from its construction until finish(), on a thread of its own.
class UtilisationSampler final {
 public:
  explicit UtilisationSampler(InterfaceCounters counters);
  ~UtilisationSampler() { stop(); }
  UtilisationSampler(const UtilisationSampler&) = delete;
  UtilisationSampler& operator=(const UtilisationSampler&) = delete;

  Utilisation finish();  // once

 private:
  void sample();
  void stop();

  const InterfaceCounters counters_;
  std::vector<InterfaceBytes> samples_;  // the thread's until it has ended
  base::Mutex mutex_;
  base::Condition wake_;
  bool stopping_ SLUICE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::bench
