// Copies whole tensors between a device and plain memory of the host, in strips through pinned
// memory. Each direction is first come, first served.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <sluice/device.h>

#include <sluice/base/mutex.h>
#include <sluice/base/status.h>
#include <sluice/data/staging/lane.h>
#include <sluice/data/staging/poll_thread.h>

namespace sluice::staging {

class Copier final {
 public:
  // These run on the copier's thread, or on the caller's if the copier has ended or failed.
  using Arrived = std::function<void(const Status&)>;
  using Queued = std::function<void(Result<std::shared_ptr<const DeviceMark>>)>;

  // REQUIRES: the device outlives this; checkPinnedBytes()
  Copier(Device& device, size_t pinnedBytes);
  // Does what stop() does.
  ~Copier() { stop(); }

  // Ends the thread, and waits until the device has done the copies that are under way. Copies that
  // have not begun end with an error.
  void stop();

  // Copies a tensor to the host when `ready` is done. `arrived` runs when all bytes are in `to`,
  // which lives until then. With no tensor it runs when all earlier ones have arrived.
  void toHost(std::shared_ptr<const DeviceBytes> from, std::shared_ptr<const DeviceMark> ready,
              std::span<std::byte> to, const Arrived& arrived);
  // Returns true iff toHost() was called for tensors that have not arrived.
  bool hasToHost() const;

  // Copies bytes to the device when `ready` is done. `queued` runs when all copies are queued, with
  // the mark of their end. REQUIRES: `from` lives until then.
  void toDevice(std::span<const std::byte> from, std::shared_ptr<DeviceBytes> to,
                std::shared_ptr<const DeviceMark> ready, const Queued& queued);

 private:
  struct Outward {
    std::shared_ptr<const DeviceBytes> from;
    std::shared_ptr<const DeviceMark> ready;
    std::span<std::byte> to;
    Arrived arrived;
    size_t issued = 0;
    size_t here = 0;
  };
  struct Inward {
    std::span<const std::byte> from;
    std::shared_ptr<DeviceBytes> to;
    std::shared_ptr<const DeviceMark> ready;
    Queued queued;
    size_t issued = 0;
  };

  Result<bool> advance();
  Result<bool> finishOut();
  Result<bool> finishIn();
  Result<bool> fillOut();
  Result<bool> fillIn();
  void fail(const Status& why);
  size_t countOf(size_t bytes, size_t from) const { return std::min(bytes - from, stripBytes_); }

  Device& device_;
  const size_t stripBytes_;

  // The thread's only.
  CopyLane out_;
  CopyLane in_;
  std::deque<Outward> outward_;  // oldest first; copies of one end before those of the next
  std::deque<Inward> inward_;
  size_t issuing_ = 0;  // of `outward_`: the first with bytes to issue

  mutable base::Mutex mutex_;
  std::vector<Outward> newOutward_ SLUICE_GUARDED_BY(mutex_);
  std::vector<Inward> newInward_ SLUICE_GUARDED_BY(mutex_);
  size_t toHost_ SLUICE_GUARDED_BY(mutex_) = 0;  // that have not arrived
  Status failure_ SLUICE_GUARDED_BY(mutex_);
  bool isEnding_ = false;  // the thread is gone

  PollThread thread_;
};

}  // namespace sluice::staging
