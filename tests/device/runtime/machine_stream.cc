// The threads of a machine's streams.
#include <algorithm>

#include <tests/device/runtime/hash.h>
#include <tests/device/runtime/machine.h>

namespace sluice::pretend {

namespace {

TimePoint streamNow() {
  return std::chrono::steady_clock::now();
}

// Wake-ups come with every change; this only bounds the harm of a lost one.
constexpr Duration kLookAtLeast = std::chrono::seconds(1);
constexpr size_t kMostIntervals = 1'000'000;

}  // namespace

void Machine::serve(StreamIndex stream) {
  while (std::optional<Work> work = next(stream)) {
    std::exception_ptr error;
    try {
      perform(*work);
    } catch (...) {
      error = std::current_exception();
    }
    work->run = nullptr;  // what the kernel owns is gone before others hear of its end
    finish(stream, *work, error);
  }
}

std::optional<Work> Machine::next(StreamIndex stream) {
  const base::Lock lock(mutex_);
  while (!isHalted_) {
    const TimePoint now = streamNow();
    const uint64_t before = schedule_.changes();
    TimePoint until = now + kLookAtLeast;
    if (schedule_.hasQueued(stream)) {
      const std::optional<TimePoint> hold = schedule_.holdUntil(stream, now);
      if (schedule_.changes() != before) changedLocked();  // it demanded work of others
      if (!hold) {
        ++running_;
        return schedule_.take(stream);
      }
      until = std::min(until, *hold);
    }
    const uint64_t seen = schedule_.changes();
    workers_[stream].changed.waitUntil(mutex_, until, [&]() SLUICE_REQUIRES(mutex_) {
      return isHalted_ || schedule_.changes() != seen;
    });
  }
  return std::nullopt;
}

void Machine::perform(Work& work) {
  if (work.kind == Kind::kCopy) {
    performCopy(work);
  } else if (work.run) {
    work.run();
  }
}

void Machine::performCopy(Work& work) {
  const TimePoint start = streamNow();
  if (work.pinnedSource != nullptr && !work.sourceHash) {
    work.sourceHash = hashOf(work.pinnedSource, work.bytes);
  }
  {
    const base::Lock lock(mutex_);
    // Copies in one direction share a link: each begins when the one before it has ended.
    // Copies on the device do not need it.
    const bool usesLink = work.direction != Direction::kOnDevice;
    const double transfer = usesLink && settings_.bytesPerSecond > 0
                                ? static_cast<double>(work.bytes) / settings_.bytesPerSecond
                                : 0;
    TimePoint& linkFree = linkFree_[static_cast<size_t>(work.direction)];
    linkFree = std::max(linkFree, streamNow()) + base::fromSeconds(transfer);
    const TimePoint end = linkFree + (usesLink ? settings_.copyLatency : Duration(0));
    if (end > streamNow()) {
      hostsChanged_.waitUntil(mutex_, end, [&]() SLUICE_REQUIRES(mutex_) { return isHalted_; });
    }
  }
  work.run();  // as late as possible: nobody may rely on an early copy
  const bool isChanged =
      work.pinnedSource != nullptr && hashOf(work.pinnedSource, work.bytes) != *work.sourceHash;
  const base::Lock lock(mutex_);
  if (isChanged) ++statistics_.changedSources;
  if (intervals_.size() < kMostIntervals) {
    intervals_.push_back({work.direction, start, streamNow(), work.bytes});
  }
}

void Machine::finish(StreamIndex stream, const Work& work, std::exception_ptr error) {
  const base::Lock lock(mutex_);
  if (error && !error_) error_ = std::move(error);
  const TimePoint now = streamNow();
  if (work.recording) work.recording->at = now;
  schedule_.finish(stream, now);
  --running_;
  changedLocked();
}

}  // namespace sluice::pretend
