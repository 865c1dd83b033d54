// The calls of a machine that wait for work, or ask for it.
#include <stdexcept>

#include <fmt/format.h>
#include <tests/device/runtime/machine.h>

namespace sluice::pretend {

namespace {

TimePoint waitNow() {
  return std::chrono::steady_clock::now();
}

constexpr Duration kLongestHalt = std::chrono::seconds(5);

}  // namespace

void Machine::demandLocked(Place place) {
  const uint64_t before = schedule_.changes();
  schedule_.demand(place, waitNow());
  if (schedule_.changes() != before) changedLocked();
}

void Machine::await(const std::vector<Place>& places) {
  std::exception_ptr error;
  {
    const base::Lock lock(mutex_);
    for (const Place& place : places) demandLocked(place);
    const bool isDone = hostsChanged_.waitUntil(
        mutex_, waitNow() + kLongestWait,
        [&]() SLUICE_REQUIRES(mutex_) { return isHalted_ || areDoneLocked(places); });
    if (!isDone) {
      throw std::runtime_error(
          fmt::format("the pretend device did not finish its work: {}", describeLocked()));
    }
    error = std::exchange(error_, nullptr);
  }
  if (error) std::rethrow_exception(error);
}

bool Machine::areDoneLocked(const std::vector<Place>& places) const {
  for (const Place& place : places) {
    if (!schedule_.isDone(place)) return false;
  }
  return true;
}

std::string Machine::describeLocked() const {
  std::string text;
  for (StreamIndex stream = 0; stream < schedule_.size(); ++stream) {
    if (schedule_.isBusy(stream)) text += schedule_.describe(stream);
  }
  return text;
}

bool Machine::isDone(const Event& event) {
  checkProcess();
  if (!event.isRecorded()) return true;
  const base::Lock lock(mutex_);
  demandLocked(event.recording_->place);
  return schedule_.isDone(event.recording_->place);
}

bool Machine::isDone(StreamIndex stream) {
  checkProcess();
  const base::Lock lock(mutex_);
  demandLocked(schedule_.end(stream));
  return !schedule_.isBusy(stream);
}

void Machine::synchronize(const Event& event) {
  checkProcess();
  if (!event.isRecorded()) return;
  {
    const base::Lock lock(mutex_);
    ++statistics_.hostWaits;
  }
  await({event.recording_->place});
}

void Machine::synchronize(StreamIndex stream) {
  checkProcess();
  {
    const base::Lock lock(mutex_);
    ++statistics_.hostWaits;
  }
  drain(stream);
}

void Machine::drain(StreamIndex stream) {
  checkProcess();
  Place end;
  {
    const base::Lock lock(mutex_);
    end = schedule_.end(stream);
  }
  await({end});
}

void Machine::synchronizeDevice(size_t device) {
  checkProcess();
  std::vector<Place> ends;
  {
    const base::Lock lock(mutex_);
    ++statistics_.hostWaits;
    for (size_t i = 0; i < kStreamsPerDevice; ++i) {
      ends.push_back(schedule_.end(defaultStream(device) + i));
    }
  }
  await(ends);
}

Duration Machine::elapsed(const Event& from, const Event& to) const {
  checkProcess();
  const base::Lock lock(mutex_);
  if (!from.isRecorded() || !to.isRecorded() || !schedule_.isDone(from.recording_->place) ||
      !schedule_.isDone(to.recording_->place)) {
    throw std::invalid_argument("the time between two events is known only when both are done");
  }
  return to.recording_->at - from.recording_->at;
}

void Machine::halt() noexcept {
  if (isInherited()) return;
  const base::Lock lock(mutex_);
  isHalted_ = true;
  for (Worker& worker : workers_) worker.changed.notifyAll();
  hostsChanged_.notifyAll();
  hostsChanged_.waitUntil(mutex_, waitNow() + kLongestHalt,
                          [&]() SLUICE_REQUIRES(mutex_) { return running_ == 0; });
}

}  // namespace sluice::pretend
