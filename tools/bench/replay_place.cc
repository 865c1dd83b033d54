#include <tools/bench/replay_place.h>

#include <sys/prctl.h>
#include <time.h>

#include <cerrno>

namespace sluice::bench {

void HostPlace::makeTensors(const Model& model, Rank rank, SessionOptions& options) {
  memory_.emplace(model, rank);
  options.memory = memory_->tensors();
}

void HostPlace::start(Session& session) {
  session_ = &session;
  timeline_.emplace(base::RealClock().now());
}

Status HostPlace::forward(TensorId tensor, Duration work) {
  // A gate that is open already has not held anything up, even if this thread has woken up late.
  if (!session_->isReady(tensor)) {
    SLUICE_RETURN_IF_ERROR(session_->wait(tensor));
    timeline_->holdUntil(base::RealClock().now());
  }
  compute(work);
  return base::ok();
}

Status HostPlace::backward(TensorId tensor, Duration work) {
  compute(work);
  return session_->gradientReady(tensor);
}

void HostPlace::compute(Duration work) {
  if (work > Duration{}) sleepUntil(timeline_->compute(work));
}

void sleepUntil(TimePoint when) {
  const auto sinceStart = when.time_since_epoch();
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(sinceStart);
  const timespec until{.tv_sec = whole.count(), .tv_nsec = (sinceStart - whole).count()};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void sleepPrecisely() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
}

}  // namespace sluice::bench
