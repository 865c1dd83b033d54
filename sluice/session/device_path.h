// The way of a session's tensors that lie on a device: a stager between the device and the trainer,
// and the host's memory that stands for the tensors. An algorithm that has targets for gradients
// (algorithms::StagingTargets) needs no such memory.
//
// Thread safety: as Session. The parts of ResultSink run on the loop, those of Listener on the
// stager's thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <sluice/device.h>

#include <sluice/algorithms/result_sink.h>
#include <sluice/base/config.h>
#include <sluice/base/mutex.h>
#include <sluice/data/staging/stager.h>
#include <sluice/observer.h>
#include <sluice/session/trainer.h>

namespace sluice::session {

class DevicePath final : public algorithms::ResultSink, public staging::Listener {
 public:
  // Returns an error if the option staging-bytes is too small. REQUIRES: device, config and
  // observer (may be null) outlive this.
  static Result<std::unique_ptr<DevicePath>> make(Device& device, const base::Config& config,
                                                  StageObserver* observer);

  // Begins to stage for this trainer, whose results this receives. REQUIRES: end() comes before the
  // trainer is destroyed.
  Status begin(Trainer& trainer);
  void end();

  // These do what those of Session do.
  Status gradientReady(TensorId tensor, DeviceMemory memory);
  Status gradientAbsent(TensorId tensor, DeviceMemory memory);
  Status handOutDelayed(TensorId tensor, DeviceMemory memory);
  Status wait(TensorId tensor);
  Status waitAll();
  bool isReady(TensorId tensor) const;

  // Returns the size of the memory that stands for tensors.
  size_t mirrorBytes() const { return mirrorBytes_; }

  // Results that come from now on wait for `mark` on the device, where the work before it still
  // reads what they overwrite.
  void waitBeforeResults(std::shared_ptr<const DeviceMark> mark) {
    stager_->waitBeforeResults(std::move(mark));
  }

  void onResult(const algorithms::SliceResult& result) override;
  void onNoResult(TensorId tensor, Step step) override;

  void onGradient(TensorId tensor, size_t first, size_t count, TimePoint begun) override;
  void onLanded(TensorId tensor, Step step) override;
  void onDeviceFailure(const Status& why) override;

 private:
  DevicePath(Device& device, const base::Config& config, StageObserver* observer)
      : device_(device), config_(config), observer_(observer) {}

  Status check(TensorId tensor, const DeviceMemory& memory) const;
  template <typename HandOver>
  Status handOver(TensorId tensor, DeviceMemory memory, HandOver&& toTrainer);

  struct Applied {
    SliceId slice{};
    Rank from{};
  };
  void report(TensorId tensor, Step step, const Applied& applied) const;

  Device& device_;
  const base::Config& config_;
  StageObserver* const observer_;
  Trainer* trainer_ = nullptr;
  std::shared_ptr<std::byte[]> memory_;  // NOLINT(*-avoid-c-arrays): of the mirrors; not filled
  size_t mirrorBytes_ = 0;
  std::vector<TensorMemory> mirrors_;  // by TensorId; empty where the algorithm has a target
  // True, by TensorId, once the tensor has come from the device.
  std::unique_ptr<std::atomic<bool>[]> isOnDevice_;  // NOLINT(*-avoid-c-arrays)
  std::unique_ptr<staging::Stager> stager_;
  // Results on their way to the device, for the observer.
  base::Guarded<std::map<std::pair<TensorId, Step>, std::vector<Applied>>> landing_;
};

}  // namespace sluice::session
