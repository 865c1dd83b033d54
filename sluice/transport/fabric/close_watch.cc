#include <sluice/transport/fabric/close_watch.h>

#include <algorithm>
#include <utility>

namespace sluice::fabric {

void CloseWatch::start(std::function<TimePoint()> lastTaken, Done onSilence) {
  begun_ = loop_.now();
  lastTaken_ = std::move(lastTaken);
  onSilence_ = std::move(onSilence);
  wait(begun_ + silence_);
}

void CloseWatch::stop() {
  if (timer_) loop_.cancel(*std::exchange(timer_, std::nullopt));
}

void CloseWatch::wait(TimePoint until) {
  // The deadline moves on with every byte that somebody takes, but the timer is not set anew
  // for each of them: it looks at the clock when it runs out, and sleeps for what is left of
  // the silence. `onSilence` may destroy this watch, so it leaves its field first and is called
  // last.
  timer_ = loop_.after(until - loop_.now(), [this] {
    timer_.reset();
    const TimePoint silentAt = std::max(begun_, lastTaken_()) + silence_;
    if (loop_.now() < silentAt) return wait(silentAt);
    const auto onSilence = std::exchange(onSilence_, nullptr);
    onSilence(Status(Code::kTimeout, "this rank closed before all queued messages could be sent"));
  });
}

}  // namespace sluice::fabric
