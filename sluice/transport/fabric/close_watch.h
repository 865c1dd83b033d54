// Ends a close that gets nowhere. The deadline is for silence: as long as others take what we send,
// on however slow a network, closing goes on. For engines; loop thread only.
#pragma once

#include <functional>
#include <optional>

#include <sluice/base/loop.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::fabric {

class CloseWatch final {
 public:
  CloseWatch(Loop& loop, Duration silence) : loop_(loop), silence_(silence) {}

  // `lastTaken` returns the time when another rank last took something of ours. `onSilence` is
  // called with kTimeout, and may destroy this watch. REQUIRES: stop() before it is destroyed
  // otherwise
  void start(std::function<TimePoint()> lastTaken, Done onSilence);
  void stop();

 private:
  void wait(TimePoint until);

  Loop& loop_;
  const Duration silence_;
  TimePoint begun_{};
  std::function<TimePoint()> lastTaken_;
  Done onSilence_;
  std::optional<TimerId> timer_;
};

}  // namespace sluice::fabric
