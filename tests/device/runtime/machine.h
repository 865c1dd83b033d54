// A machine with pretend devices: their memory, pinned host memory, streams and events. A stream is
// a thread that works through a queue, so kernels and copies are as asynchronous as on a real
// device. See schedule.h for the promises, and for the modes that find programs which rely on more.
//
// Any thread may call a machine. One mutex guards all its state; no work runs under it. Every wait
// has an end: threads look again after a second at the latest, and a host thread that waits for
// longer than kLongestWait gets an exception that describes the queues.
//
// A forked child has the memory of a machine, but none of its threads. There, free() and
// freePinned() do nothing, and all other calls throw.
#pragma once

#include <sys/types.h>

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sluice/base/mutex.h>
#include <tests/device/runtime/device_memory.h>
#include <tests/device/runtime/pinned_memory.h>
#include <tests/device/runtime/schedule.h>

namespace sluice::pretend {

inline constexpr size_t kDevices = 2;
inline constexpr size_t kStreamsPerDevice = 33;  // the default stream and a pool of 32
inline constexpr Duration kLongestWait = std::chrono::seconds(120);

// A point in the work of a stream. It can be recorded again: who waited before still waits for the
// older point. Not thread-safe.
class Event final {
 public:
  bool isRecorded() const { return recording_ != nullptr; }

 private:
  friend class Machine;
  std::shared_ptr<Recording> recording_;
};

struct Copy {
  Direction direction = Direction::kOnDevice;
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
  // The host waits for the copy. Otherwise its memory must be pinned.
  bool isBlocking = false;
  // Replaces the plain copy of bytes, for a copy that also converts or has gaps. `to` and `from`
  // only tell then which blocks it uses.
  std::function<void()> run;
};

class Machine final {
 public:
  explicit Machine(size_t bytesPerDevice = size_t{1} << 30);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void set(const Settings& settings);
  Settings settings() const;
  Statistics statistics() const;
  std::vector<CopyInterval> copyIntervals() const;  // since the last reset, in the order of ends
  void resetStatistics();

  // Device memory. Returned addresses are the device's, which the host cannot access.
  // Throws std::bad_alloc.
  void* allocate(size_t device, size_t bytes, StreamIndex stream);
  void free(void* block);
  void recordStream(const void* address, StreamIndex stream);
  void emptyCache();  // waits for all work
  // Returns where kernels reach this address of a device. Kernels only.
  template <typename T>
  T* reach(T* address) const {
    return reinterpret_cast<T*>(memory_.mappings().reach(reinterpret_cast<uintptr_t>(address)));
  }
  bool isDeviceMemory(const void* address) const { return memory_.mappings().contains(address); }
  size_t deviceOf(const void* address) const;
  size_t usedBytes(size_t device) const;
  size_t peakBytes(size_t device) const;
  void resetPeakBytes(size_t device);

  // Pinned host memory.
  void* allocatePinned(size_t bytes);
  void freePinned(void* block);
  bool isPinned(const void* address) const;
  void usePinned(const void* address, StreamIndex stream);  // by the work added so far
  void emptyPinnedCache();
  void resetPeakPinnedBytes();

  // Streams. A device's streams are numbered one after another, its default stream first.
  static StreamIndex defaultStream(size_t device) { return device * kStreamsPerDevice; }
  static size_t deviceOfStream(StreamIndex stream) { return stream / kStreamsPerDevice; }
  StreamIndex newStream(size_t device);  // the pool's next one

  // Queues a kernel. `uses` are addresses of the device's or pinned memory that it reads or writes.
  // An exception of the kernel is kept and thrown by the next call that waits.
  void launch(StreamIndex stream, std::function<void()> kernel, const std::vector<Use>& uses = {});
  // Throws std::invalid_argument if it does not block and the host's memory is not pinned.
  void copy(StreamIndex stream, Copy copy);

  void record(StreamIndex stream, Event& event);
  // The stream's later work waits for the event. Does nothing if the event is not recorded.
  void wait(StreamIndex stream, const Event& event);
  bool isDone(const Event& event);
  bool isDone(StreamIndex stream);
  void synchronize(const Event& event);
  void synchronize(StreamIndex stream);
  void synchronizeDevice(size_t device);
  // Waits like synchronize(), for a kernel that runs on the calling thread. Not counted.
  void drain(StreamIndex stream);
  // Both events must be done.
  Duration elapsed(const Event& from, const Event& to) const;

  // No further work starts, and calls no longer wait. Returns when the running work has ended, or
  // after a few seconds. For the end of a process.
  void halt() noexcept;
  // True in a forked child of the process that made the machine.
  bool isInherited() const;

 private:
  struct Worker {
    base::Condition changed;
    std::thread thread;
  };

  void checkProcess() const;
  std::vector<Use> blocksLocked(const std::vector<Use>& uses) const SLUICE_REQUIRES(mutex_);
  Place addLocked(StreamIndex stream, Work work) SLUICE_REQUIRES(mutex_);
  void demandLocked(Place place) SLUICE_REQUIRES(mutex_);
  void changedLocked() SLUICE_REQUIRES(mutex_);
  // Waits for these places, and throws the error of a kernel.
  void await(const std::vector<Place>& places);
  bool areDoneLocked(const std::vector<Place>& places) const SLUICE_REQUIRES(mutex_);
  void fillLocked(const DeviceMemory::Freed& freed) SLUICE_REQUIRES(mutex_);
  std::string describeLocked() const SLUICE_REQUIRES(mutex_);

  // On the thread of a stream.
  void serve(StreamIndex stream);
  std::optional<Work> next(StreamIndex stream);
  void perform(Work& work);
  void performCopy(Work& work);
  void finish(StreamIndex stream, const Work& work, std::exception_ptr error);

  const pid_t process_;
  mutable base::Mutex mutex_;
  base::Condition hostsChanged_;
  DeviceMemory memory_;  // guarded by mutex_, except for mappings()
  PinnedMemory pinned_ SLUICE_GUARDED_BY(mutex_);
  Settings settings_ SLUICE_GUARDED_BY(mutex_);
  Schedule schedule_ SLUICE_GUARDED_BY(mutex_);
  Statistics statistics_ SLUICE_GUARDED_BY(mutex_);
  std::vector<CopyInterval> intervals_ SLUICE_GUARDED_BY(mutex_);
  std::array<TimePoint, kDirections> linkFree_ SLUICE_GUARDED_BY(mutex_){};
  std::exception_ptr error_ SLUICE_GUARDED_BY(mutex_);  // the first one since the last report
  std::vector<size_t> streamsMade_ SLUICE_GUARDED_BY(mutex_);
  std::vector<Worker> workers_;  // the threads are guarded by mutex_
  size_t running_ SLUICE_GUARDED_BY(mutex_) = 0;
  bool isHalted_ SLUICE_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::pretend
