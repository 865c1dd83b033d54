// Moves gradients from a device to the host, and results back, piece by piece behind the computing.
//
// Out: a gradient is handed over while the device still computes it. A thread of the stager's own
// copies it into pinned memory, the most urgent tensor first, and from there into plain memory, its
// target. Each slice that is whole there goes on to the network.
// In: a result that has come to plain memory is copied back at once, through pinned memory again.
// A reader of the tensor waits on the host only until that copy is queued.
//
// Pinned memory holds bytes only while they are copied. Each direction has its own half of it, so
// that neither can stop the other.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sluice/device.h>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/base/mutex.h>
#include <sluice/base/status.h>
#include <sluice/data/plan/plan.h>
#include <sluice/data/staging/lane.h>
#include <sluice/data/staging/pieces.h>
#include <sluice/data/staging/poll_thread.h>

namespace sluice::staging {

// The whole result of a tensor, in plain memory of the host.
struct HostResult {
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};  // keeps the bytes until they are copied; null: they stay
};

// The order in which gradients are copied.
enum class CopyOrder : uint8_t { kUrgentFirst, kOldestFirst };

struct StagerTerms {
  Device& device;          // outlives the stager
  const plan::Plan& plan;  // outlives the stager
  // The targets of gradients, by TensorId, which outlive the stager. An empty one is given in each
  // step by targetIs().
  std::vector<std::span<std::byte>> mirrors;
  size_t pinnedBytes = 0;  // for both directions together
  CopyOrder order = CopyOrder::kUrgentFirst;
};

// Called on the stager's thread, or by stop() for what lands meanwhile.
class Listener {
 public:
  virtual ~Listener() = default;
  // Hears that the bytes of these slices are in the target: `count` slices, from the tensor's slice
  // `first`. The last copy that they needed was queued at `begun`.
  virtual void onGradient(TensorId tensor, size_t first, size_t count, TimePoint begun) = 0;
  // Hears that the tensor's whole result of this step is on the device.
  virtual void onLanded(TensorId tensor, Step step) = 0;
  // Hears that the device has failed: nothing more comes, and every wait ends with this error.
  virtual void onDeviceFailure(const Status& why) = 0;
};

class Stager final {
 public:
  // REQUIRES: `listener` lives until stop() has returned.
  Stager(StagerTerms terms, Listener& listener);
  // Does what stop() does.
  ~Stager();
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  // Ends the thread, and waits until the device has done the copies that are under way. Nothing is
  // copied afterwards. A second call does nothing.
  void stop();

  // Begins the tensor's next step. Any thread. REQUIRES: the result of the tensor's last step is
  // queued, or does not come (noResult()).
  void begin(TensorId tensor, DeviceMemory memory);

  // Sends the gradient of the tensor's present step to `target`, which stays until it is all there.
  // Any thread, before begin() or after it. REQUIRES: the tensor has no mirror.
  void targetIs(TensorId tensor, std::span<std::byte> target);

  // Notes that bytes [first, first + count) of the tensor's result are there. They do not change
  // before the tensor's next begin(). One thread, the loop's, calls this and noResult().
  void onResult(TensorId tensor, Step step, size_t first, size_t count, const HostResult& result);
  // Notes that the tensor has no result in this step. Like onResult(), this may come before
  // begin(), if the step has no gradient here.
  void noResult(TensorId tensor);

  // Copies to the device that are queued from now on wait for `mark`, not for the mark of their
  // tensor's memory. Any thread.
  void waitBeforeResults(std::shared_ptr<const DeviceMark> mark);

  // Waits until all copies of the tensor's result are queued, then makes the calling thread's
  // stream wait for them. `interruption`, if any, is called now and then; its error ends the wait.
  Status wait(TensorId tensor, Duration atMost, const std::function<Status()>& interruption = {});
  // Returns true iff wait() would not wait.
  bool isQueued(TensorId tensor) const;

  // Says for people what the tensor waits for: "3 of 8 slices not yet copied from cuda:0".
  std::string describeWait(TensorId tensor) const;

 private:
  // A tensor on its way to the host. Thread only.
  struct Outward {
    std::shared_ptr<const DeviceBytes> gradient;
    std::shared_ptr<const DeviceMark> ready;
    uint64_t age = 0;
    size_t piecesIssued = 0;
  };
  // A tensor on its way to the device. Thread only.
  struct Inward {
    std::shared_ptr<DeviceBytes> result;
    std::shared_ptr<const DeviceMark> ready;
    size_t piecesIssued = 0;
  };
  // The state of a tensor as other threads see it.
  struct Progress {
    size_t piecesQueued = 0;                     // of the result
    size_t slicesHere = 0;                       // of the gradient
    bool isUnderWay = false;                     // true from begin() until the result is queued
    std::shared_ptr<const DeviceMark> landed{};  // of the last copy that was queued
  };
  struct ResultPiece {
    TensorId tensor{};
    size_t piece = 0;
    Step step{};
    friend auto operator<=>(const ResultPiece&, const ResultPiece&) = default;
  };
  // A message of another thread to the stager's.
  struct News {
    enum class Kind : uint8_t { kBegun, kTarget, kResult, kNoResult, kMark };
    Kind kind;
    ResultPiece what{};             // its piece and step with kResult only
    DeviceMemory memory{};          // with kBegun; its mark only with kMark
    std::span<std::byte> target{};  // with kTarget
    HostResult result{};            // with kResult
  };

  void tell(News news);
  // These return whether anything has changed.
  Result<bool> advance();
  bool takeNews();
  Result<bool> finishOut();
  std::span<std::byte> targetOf(TensorId tensor) const;
  Result<bool> finishIn();
  Result<bool> fillOut();
  Result<bool> fillIn();
  Status noteProduced();
  std::optional<TensorId> nextOut() const;
  Status issueOut(TensorId tensor);
  Status issueIn(const ResultPiece& what, const HostResult& result);
  void tellSlices(const Copy& copy);
  void tellLanded(const Copy& copy);
  void fail(const Status& why);
  uint64_t urgencyOf(TensorId tensor, const Outward& outward) const;
  void begun(TensorId tensor, DeviceMemory memory);
  void hasNoResult(TensorId tensor);
  const std::vector<Piece>& piecesOf(TensorId tensor) const { return pieces_[index(tensor)]; }

  const StagerTerms terms_;
  Listener& listener_;
  const size_t pieceBytes_;
  const std::vector<std::vector<Piece>> pieces_;  // by TensorId

  // The loop's only: bytes of each piece whose result has not come yet.
  std::vector<std::vector<size_t>> missing_;

  // The stager's thread only.
  CopyLane out_;
  CopyLane in_;
  std::map<TensorId, Outward> outward_;  // with pieces to issue
  std::deque<TensorId> unproduced_;      // of them, oldest first: the device is at work on them
  std::set<std::pair<uint64_t, TensorId>> produced_;  // of them, the most urgent first
  bool isAhead_ = false;  // a copy of a gradient that was not there yet has been issued
  std::map<TensorId, std::span<std::byte>> targets_;  // of gradients on their way, without mirror
  std::map<TensorId, Inward> inward_;
  std::set<TensorId> hasNoResult_;                 // in a step whose begin() is not here yet
  std::map<ResultPiece, HostResult> resultsHere_;  // the most urgent first
  uint64_t begunSoFar_ = 0;

  mutable base::Mutex mutex_;
  base::Condition queued_;
  Status failure_ SLUICE_GUARDED_BY(mutex_);
  std::vector<News> inbox_ SLUICE_GUARDED_BY(mutex_);
  std::vector<Progress> progress_ SLUICE_GUARDED_BY(mutex_);

  bool isStopped_ = false;
  PollThread thread_;
};

}  // namespace sluice::staging
