/// @file
/// Memory of an accelerator, and the copies between it and the host. sluice calls this interface
/// and knows no accelerator itself. sluice::torch has an implementation for every accelerator that
/// PyTorch has.
///
/// Work on a device is queued on streams and done later. A mark tells when: it lies in the work of
/// a stream, and it is done when all work before it is.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <sluice/status.h>

namespace sluice {

/// A place in the work of one stream. Any thread may ask it.
class SLUICE_API DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  /// Returns true iff all work before the mark is done; an error if the device has failed. It never
  /// waits.
  virtual Result<bool> isDone() const = 0;
};

/// The bytes of one tensor in a device's memory. The device does not use this memory for anything
/// else while this object lives.
class SLUICE_API DeviceBytes {
 public:
  virtual ~DeviceBytes() = default;
  /// Returns their number.
  virtual size_t size() const = 0;
};

/// Memory of the host that the device's copies may use while the program goes on: pinned memory.
class SLUICE_API PinnedBytes {
 public:
  virtual ~PinnedBytes() = default;
  /// Returns the memory.
  virtual std::span<std::byte> bytes() = 0;
};

/// One accelerator. Any thread may call. Copies of one direction are done in the order of the
/// calls.
class SLUICE_API Device {
 public:
  virtual ~Device() = default;

  /// Returns its name for people: "cuda:0".
  virtual std::string name() const = 0;

  /// Returns new pinned memory.
  virtual Result<std::unique_ptr<PinnedBytes>> allocatePinned(size_t bytes) = 0;

  /// Queues a copy of `count` bytes, from `offset` on, to the beginning of `to`. The copy begins
  /// when `after` is done, if it is not null. Returns the mark of the copy's end. REQUIRES: `from`
  /// and `to` live until then.
  virtual Result<std::shared_ptr<DeviceMark>> copyToHost(const DeviceBytes& from, size_t offset,
                                                         PinnedBytes& to, size_t count,
                                                         const DeviceMark* after) = 0;

  /// Queues a copy of the first `count` bytes of `from` into `to`, at `offset`, in the same way.
  virtual Result<std::shared_ptr<DeviceMark>> copyToDevice(PinnedBytes& from, DeviceBytes& to,
                                                           size_t offset, size_t count,
                                                           const DeviceMark* after) = 0;

  /// Makes the stream on which the calling thread queues its work wait for the mark.
  virtual Status makeStreamWait(const DeviceMark& mark) = 0;
};

/// The memory of one tensor on a device, in one step.
struct DeviceMemory {
  std::shared_ptr<const DeviceBytes> gradient{};  ///< Holds the gradient; null: there is none.
  std::shared_ptr<DeviceBytes> result{};          ///< Receives the mean or the new parameters.
  /// Is done when the gradient is there, and when nobody reads `result` any more. Null: both are so
  /// already.
  std::shared_ptr<const DeviceMark> ready{};
};

}  // namespace sluice
