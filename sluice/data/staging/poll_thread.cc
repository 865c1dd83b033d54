#include <sluice/data/staging/poll_thread.h>

#include <algorithm>
#include <utility>

#include <sluice/base/thread.h>

namespace sluice::staging {
namespace {

constexpr Duration kShortestPause = std::chrono::microseconds(20);
constexpr Duration kLongestPause = std::chrono::microseconds(500);
constexpr Duration kIdle = std::chrono::seconds(1);

}  // namespace

PollThread::PollThread(std::string_view name, Work work)
    : work_(std::move(work)), thread_(base::startThread(name, [this] { run(); })) {}

void PollThread::wake() {
  {
    const base::Lock lock(mutex_);
    // The flag stays up until the thread looks, so a call between two of its waits is not lost.
    isAwake_ = true;
  }
  changed_.notifyAll();
}

void PollThread::stop() {
  if (!thread_.joinable()) return;
  {
    const base::Lock lock(mutex_);
    isEnding_ = true;
  }
  changed_.notifyAll();
  thread_.join();
}

void PollThread::run() {
  const base::RealClock clock;
  Duration pause = kShortestPause;
  while (true) {
    const auto moved = work_.advance();
    if (!moved.isOk()) return work_.onFailure(moved.status());
    // The device is asked again and again whether copies have ended. The pauses grow while
    // nothing happens: short copies are seen at once, and long ones cost little CPU.
    pause = *moved ? kShortestPause : std::min(pause + pause / 2, kLongestPause);
    const Duration sleep = *moved ? Duration(0) : work_.isIdle() ? kIdle : pause;
    const base::Lock lock(mutex_);
    changed_.waitUntil(mutex_, clock.now() + sleep,
                       [this]() SLUICE_REQUIRES(mutex_) { return isEnding_ || isAwake_; });
    if (isEnding_) return;
    isAwake_ = false;
  }
}

}  // namespace sluice::staging
