// Memory, settings and the calls that queue work. machine_wait.cc holds the calls that wait, and
// machine_stream.cc the threads of the streams.
#include <tests/device/runtime/machine.h>

#include <unistd.h>

#include <cstring>
#include <new>
#include <stdexcept>

#include <sluice/base/thread.h>
#include <tests/device/runtime/hash.h>

namespace sluice::pretend {

namespace {

TimePoint machineNow() {
  return std::chrono::steady_clock::now();
}

// Longer blocks are overwritten by their stream, not under the machine's lock.
constexpr size_t kFilledAtOnce = size_t{1} << 20;

size_t indexOf(Direction direction) {
  return static_cast<size_t>(direction);
}

}  // namespace

Machine::Machine(size_t bytesPerDevice)
    : process_(::getpid()),
      memory_(kDevices, bytesPerDevice),
      schedule_(kDevices * kStreamsPerDevice),
      streamsMade_(kDevices, 0),
      workers_(kDevices * kStreamsPerDevice) {}

Machine::~Machine() {
  halt();
  for (Worker& worker : workers_) {
    if (worker.thread.joinable()) worker.thread.join();
  }
}

bool Machine::isInherited() const {
  return ::getpid() != process_;
}

void Machine::checkProcess() const {
  if (isInherited()) {
    throw std::runtime_error("a forked child cannot use the pretend device of its parent");
  }
}

void Machine::set(const Settings& settings) {
  checkProcess();
  const base::Lock lock(mutex_);
  settings_ = settings;
  schedule_.set(settings);
  changedLocked();
}

Settings Machine::settings() const {
  checkProcess();
  const base::Lock lock(mutex_);
  return settings_;
}

Statistics Machine::statistics() const {
  checkProcess();
  const base::Lock lock(mutex_);
  Statistics copy = statistics_;
  copy.pinnedBytes = pinned_.usedBytes();
  copy.peakPinnedBytes = pinned_.peakBytes();
  return copy;
}

std::vector<CopyInterval> Machine::copyIntervals() const {
  checkProcess();
  const base::Lock lock(mutex_);
  return intervals_;
}

void Machine::resetStatistics() {
  checkProcess();
  const base::Lock lock(mutex_);
  statistics_ = {};
  intervals_.clear();
  pinned_.resetPeak();
}

void* Machine::allocate(size_t device, size_t bytes, StreamIndex stream) {
  checkProcess();
  for (const bool isLastTry : {false, true}) {
    {
      const base::Lock lock(mutex_);
      if (const auto block = memory_.allocate(device, bytes, stream, schedule_)) {
        return reinterpret_cast<void*>(*block);
      }
    }
    if (!isLastTry) emptyCache();
  }
  throw std::bad_alloc();
}

void Machine::free(void* block) {
  if (isInherited()) return;
  const base::Lock lock(mutex_);
  if (const auto freed = memory_.free(reinterpret_cast<uintptr_t>(block), schedule_)) {
    fillLocked(*freed);
  }
}

void Machine::fillLocked(const DeviceMemory::Freed& freed) {
  std::byte* const bytes = memory_.mappings().reach(freed.block);
  const size_t size = freed.bytes;
  if (!schedule_.isBusy(freed.stream) && size <= kFilledAtOnce) {
    std::memset(bytes, 0xff, size);
    return;
  }
  Work work;
  work.kind = Kind::kFill;
  work.run = [bytes, size] { std::memset(bytes, 0xff, size); };
  work.uses = {{freed.block, true}};
  addLocked(freed.stream, std::move(work));
}

void Machine::recordStream(const void* address, StreamIndex stream) {
  checkProcess();
  const base::Lock lock(mutex_);
  memory_.recordStream(reinterpret_cast<uintptr_t>(address), stream);
}

void Machine::emptyCache() {
  for (size_t device = 0; device < kDevices; ++device) synchronizeDevice(device);
  const base::Lock lock(mutex_);
  memory_.emptyCache(schedule_);
}

size_t Machine::deviceOf(const void* address) const {
  return memory_.deviceOf(reinterpret_cast<uintptr_t>(address));
}

size_t Machine::usedBytes(size_t device) const {
  checkProcess();
  const base::Lock lock(mutex_);
  return memory_.usedBytes(device);
}

size_t Machine::peakBytes(size_t device) const {
  checkProcess();
  const base::Lock lock(mutex_);
  return memory_.peakBytes(device);
}

void Machine::resetPeakBytes(size_t device) {
  checkProcess();
  const base::Lock lock(mutex_);
  memory_.resetPeak(device);
}

void* Machine::allocatePinned(size_t bytes) {
  checkProcess();
  const base::Lock lock(mutex_);
  return pinned_.allocate(bytes, schedule_);
}

void Machine::freePinned(void* block) {
  if (isInherited()) return;
  const base::Lock lock(mutex_);
  pinned_.free(block);
}

bool Machine::isPinned(const void* address) const {
  if (isInherited()) return false;
  const base::Lock lock(mutex_);
  return pinned_.blockOf(address) != nullptr;
}

void Machine::usePinned(const void* address, StreamIndex stream) {
  checkProcess();
  const base::Lock lock(mutex_);
  if (void* block = pinned_.blockOf(address)) {
    pinned_.use(block, schedule_.end(stream), true, schedule_);
  }
}

void Machine::emptyPinnedCache() {
  checkProcess();
  const base::Lock lock(mutex_);
  pinned_.emptyCache(schedule_);
}

void Machine::resetPeakPinnedBytes() {
  checkProcess();
  const base::Lock lock(mutex_);
  pinned_.resetPeak();
}

StreamIndex Machine::newStream(size_t device) {
  checkProcess();
  const base::Lock lock(mutex_);
  return defaultStream(device) + 1 + streamsMade_[device]++ % (kStreamsPerDevice - 1);
}

std::vector<Use> Machine::blocksLocked(const std::vector<Use>& uses) const {
  std::vector<Use> blocks;
  for (const Use& use : uses) {
    if (const auto device = memory_.blockOf(use.block)) {
      blocks.push_back({*device, use.writes});
    } else if (const void* host = pinned_.blockOf(reinterpret_cast<const void*>(use.block))) {
      blocks.push_back({reinterpret_cast<uintptr_t>(host), use.writes});
    }
  }
  return blocks;
}

Place Machine::addLocked(StreamIndex stream, Work work) {
  const Place place = schedule_.add(stream, std::move(work), machineNow());
  Worker& worker = workers_[stream];
  if (!worker.thread.joinable() && !isHalted_) {
    worker.thread = base::startThread("pretend stream", [this, stream] { serve(stream); });
  }
  changedLocked();
  return place;
}

void Machine::launch(StreamIndex stream, std::function<void()> kernel,
                     const std::vector<Use>& uses) {
  checkProcess();
  const base::Lock lock(mutex_);
  Work work;
  work.kind = Kind::kKernel;
  work.run = std::move(kernel);
  work.uses = blocksLocked(uses);
  ++statistics_.kernels;
  addLocked(stream, std::move(work));
}

void Machine::copy(StreamIndex stream, Copy copy) {
  checkProcess();
  Work work;
  work.kind = Kind::kCopy;
  work.direction = copy.direction;
  work.bytes = copy.bytes;
  std::vector<Place> awaited;
  {
    const base::Lock lock(mutex_);
    const void* const host = copy.direction == Direction::kToHost     ? copy.to
                             : copy.direction == Direction::kToDevice ? copy.from
                                                                      : nullptr;
    void* const pinned = host != nullptr ? pinned_.blockOf(host) : nullptr;
    const bool isUnpinned = host != nullptr && pinned == nullptr;
    copy.isBlocking |= isUnpinned && settings_.unpinnedCopiesWait;
    if (isUnpinned && !copy.isBlocking) {
      throw std::invalid_argument(
          "a copy that does not block needs pinned host memory: it would read or write memory "
          "that the host may change or free meanwhile");
    }
    const bool readsPinned = pinned != nullptr && copy.direction == Direction::kToDevice;
    if (readsPinned && pinned_.contains(copy.from, copy.bytes)) {
      work.pinnedSource = copy.from;
      if (!pinned_.isWritten(pinned, schedule_)) {
        work.sourceHash = hashOf(copy.from, copy.bytes);
      }
    }
    work.uses = blocksLocked({{reinterpret_cast<uintptr_t>(copy.from), false},
                              {reinterpret_cast<uintptr_t>(copy.to), true}});
    if (copy.run) {
      work.run = std::move(copy.run);
    } else {
      work.run = [to = isDeviceMemory(copy.to) ? reach(copy.to) : copy.to,
                  from = isDeviceMemory(copy.from) ? reach(copy.from) : copy.from,
                  bytes = copy.bytes] { std::memcpy(to, from, bytes); };
    }
    ++statistics_.copies[indexOf(copy.direction)];
    statistics_.bytes[indexOf(copy.direction)] += copy.bytes;
    const Place place = addLocked(stream, std::move(work));
    if (pinned != nullptr) {
      pinned_.use(pinned, place, copy.direction == Direction::kToHost, schedule_);
    }
    if (copy.isBlocking) {
      ++statistics_.hostWaits;
      awaited.push_back(place);
    }
  }
  if (copy.isBlocking) await(awaited);
}

void Machine::record(StreamIndex stream, Event& event) {
  checkProcess();
  const base::Lock lock(mutex_);
  Work work;
  work.kind = Kind::kRecord;
  event.recording_ = std::make_shared<Recording>();
  work.recording = event.recording_;
  ++statistics_.eventsRecorded;
  event.recording_->place = addLocked(stream, std::move(work));
}

void Machine::wait(StreamIndex stream, const Event& event) {
  checkProcess();
  if (!event.isRecorded()) return;
  const base::Lock lock(mutex_);
  Work work;
  work.kind = Kind::kWait;
  work.awaited = event.recording_->place;
  ++statistics_.streamWaits;
  addLocked(stream, std::move(work));
}

void Machine::changedLocked() {
  // A stream without queued work waits only for work of its own, which this call may have added.
  for (StreamIndex stream = 0; stream < workers_.size(); ++stream) {
    if (schedule_.hasQueued(stream)) workers_[stream].changed.notifyAll();
  }
  hostsChanged_.notifyAll();
}

}  // namespace sluice::pretend
