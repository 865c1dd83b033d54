// The worker's gates, one per tensor. A gate closes when backward hands over the tensor's gradient
// and opens when the result of that step is here; the next forward pass waits at each gate for its
// own layer only.
//
// Thread safety: every method may be called from any thread. The training thread closes and waits,
// the loop opens and fails.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/base/mutex.h>
#include <sluice/base/status.h>
#include <sluice/base/whereabouts.h>
#include <sluice/model.h>
#include <sluice/observer.h>

namespace sluice::gate {

struct WaitOptions {
  Duration atMost;      // after this the wait returns kTimeout, naming tensor and step
  Duration stallAfter;  // the time until `onStall` is called, and between two calls
  // Called a few times a second on the waiting thread, without the lock. An error ends that wait,
  // and nothing else. Serves a user who presses Ctrl-C. May be empty.
  std::function<Status()> interruption{};
  // Says where the ranks are that may be missing, for the text of kTimeout. Called on the waiting
  // thread, without the lock. May be empty, and may return an empty text.
  std::function<std::string()> otherRanks{};
  base::TrainingThread* thread = nullptr;  // is told of waits; may be null
};

class Gates final {
 public:
  // A stalled wait has been going on for `waited`. Called without the lock on the waiting thread,
  // so that it may ask other objects what is missing.
  using OnStall = std::function<void(TensorId, Step, Duration waited)>;

  // REQUIRES: `observer`, if any, outlives the gates.
  Gates(std::vector<std::string> tensorNames, WaitOptions options, OnStall onStall,
        StageObserver* observer = nullptr);

  // Closes the tensor's gate, when the gradient of its next step is handed over, and returns that
  // step. The first step is 0. Returns an error if the gate is closed already, unless all waits end
  // with an error anyway.
  sluice::Result<Step> close(TensorId tensor);

  // Makes `step` the first step of the tensor, for a job that goes on from there. REQUIRES: close()
  // has not been called for it.
  void startAt(TensorId tensor, Step step);

  // Opens the gate: the result of `step` is here. REQUIRES: it is the step that the gate was closed
  // for.
  void open(TensorId tensor, Step step) { open(tensor, step, Result::kHere); }

  // Opens the gate for a step in which no worker had a gradient, so there is no result.
  void openEmpty(TensorId tensor, Step step) { open(tensor, step, Result::kNone); }

  // Makes every wait, now and later, return `why`. The first error sticks.
  void fail(const Status& why);

  // Says that no step from number `steps` on will ever have a result: another rank no longer takes
  // part. Waits for such a step return `why`; waits for earlier steps go on. The first call sticks.
  void endAfter(uint64_t steps, const Status& why);

  // Returns the largest number of steps that any gate was closed for.
  uint64_t stepsBegun() const;

  // Returns the error with which every wait ends; ok if nothing has failed.
  Status error() const;

  // Returns ok when the tensor's gate is open, or the reason why it will not open.
  Status wait(TensorId tensor);

  // Returns when every gate is open.
  Status waitAll();

  // The form for those who cannot block, as a simulation: `then` runs once, with ok when the gate
  // is open, or with the reason why it will not open. It runs at once if that is known, otherwise
  // on the thread that opens or fails the gates, without the lock. REQUIRES: one `then` per gate at
  // a time.
  void whenOpen(TensorId tensor, std::function<void(const Status&)> then);

  // The non-blocking form: true iff wait() would return ok at once.
  bool isOpen(TensorId tensor) const;

  // True iff the tensor's last step was opened by openEmpty(). REQUIRES: the gate is open.
  bool isEmpty(TensorId tensor) const;

  // Names the gates that are closed now, for reports: "conv1.weight of step 12, fc.bias of step 12
  // and 30 more".
  std::string describeClosed() const;

 private:
  enum class Result : uint8_t { kHere, kNone };
  struct Gate {
    uint64_t closedFor = 0;  // steps handed over
    uint64_t opened = 0;     // steps whose result is here; the gate is open iff the two are equal
    Result last = Result::kHere;
  };
  void open(TensorId tensor, Step step, Result result);
  Status waitFrom(TimePoint start, TensorId tensor);
  bool isOpenLocked(TensorId tensor) const SLUICE_REQUIRES(mutex_);
  // Runs the callbacks of gates that have opened or failed.
  void callBack();
  // Returns the reason why a closed gate stays closed; ok if it may still open.
  const Status& errorLocked(TensorId tensor) const SLUICE_REQUIRES(mutex_);

  // Constant after construction.
  const std::vector<std::string> names_;
  const WaitOptions options_;
  const OnStall onStall_;
  StageObserver* const observer_;
  const base::RealClock clock_;  // a thread that blocks cannot be stepped by a manual clock

  mutable base::Mutex mutex_;
  base::Condition changed_;
  std::vector<Gate> gates_ SLUICE_GUARDED_BY(mutex_);
  Status error_ SLUICE_GUARDED_BY(mutex_);
  uint64_t stepsToCome_ SLUICE_GUARDED_BY(mutex_) = std::numeric_limits<uint64_t>::max();
  std::map<TensorId, std::function<void(const Status&)>> callbacks_ SLUICE_GUARDED_BY(mutex_);
  Status end_ SLUICE_GUARDED_BY(mutex_);  // the reason why no more steps come
};

// Returns the names in the order of the tensors' ids.
inline std::vector<std::string> tensorNames(const Model& model) {
  std::vector<std::string> names;
  names.reserve(model.tensors.size());
  for (const Tensor& tensor : model.tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace sluice::gate
