// Abilities that an algorithm may have: to save its state, to hand out results late, to go on
// without a lost rank, to have gradients staged into its own memory, and to take over a model in the
// middle of training. A strategy that has one
// passes itself to Strategy's constructor; the others have these defaults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <sluice/base/ids.h>
#include <sluice/base/status.h>

namespace sluice::algorithms {

using Done = std::function<void(const Status&)>;

// The state that a rank keeps from step to step, for a checkpoint. Put back on a rank of the same
// model, training goes on as if it had not stopped. By default a strategy keeps no state.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // `done` runs when all that take() takes from other ranks is here, or with why it never will be.
  // Fabric's loop. REQUIRES: every gate is open, and the strategy is idle.
  virtual void prepare(const Done& done) { done(base::ok()); }

  // Returns the state; empty if there is nothing to keep. take() is not a mere look: where workers
  // have copies of the servers' parameters, this worker's become those that are saved. REQUIRES:
  // every gate is open, the strategy is idle, and prepare() is done, once for each call.
  //
  // Training thread. The loop goes on meanwhile: other ranks may be in the next step already. State
  // that only steps of this rank change is read and written here, since there is no such step now;
  // state that others' messages change as well is touched on the loop, in pieces (slices.h).
  virtual Result<std::vector<std::byte>> take() { return std::vector<std::byte>(); }

  // Puts a state back; empty: as at the beginning. Training thread, and REQUIRES the same as
  // take().
  virtual Status restore(std::span<const std::byte> state) {
    return state.empty() ? base::ok()
                         : Status(Code::kInvalidArgument,
                                  "this algorithm keeps no state, so that none can be loaded; use "
                                  "the algorithm of the checkpoint");
  }
};

// Results that belong to earlier steps. By default a step has its own result. Fabric's loop.
class DelayedResults {
 public:
  virtual ~DelayedResults() = default;

  // Returns how many means of earlier steps have not been handed out.
  virtual size_t count() const { return 0; }

  // Hands out the oldest delayed mean as the result of a step in which no rank has gradients. The
  // gate of `tensor` is closed for `step`. Called for all tensors.
  virtual Status handOut(TensorId /*tensor*/, Step /*step*/) {
    return {Code::kInvalidArgument,
            "this algorithm delays no results, so that none can be handed out; only pipe does"};
  }
};

// Rules for going on without a rank that is lost or has left. By default a strategy does not: every
// wait ends with that rank's name. Fabric's loop.
class LossPolicy {
 public:
  virtual ~LossPolicy() = default;

  // Another worker takes part in no step from `stepsOfOther` on. Returns the first step that can
  // have no result without it; empty: this rank can go on alone.
  virtual std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const {
    return stepsOfOther;
  }

  // True iff this rank goes on without the other one; asked about this rank itself, iff the others
  // do.
  virtual bool goesOnWithout(Rank /*lost*/) const { return false; }

  // The rank is gone. REQUIRES: goesOnWithout() it.
  virtual void forget(Rank /*lost*/) {}
};

// Takes over a model in the middle of training, after the strategy before it has lost a member. By
// default that is not possible. Fabric's loop.
class Takeover {
 public:
  virtual ~Takeover() = default;

  virtual bool isPossible() const { return false; }

  // True iff all tensors start at the earliest of the slices' steps. A tensor that has the result
  // of a step already then takes part in that step without a gradient.
  virtual bool startsTogether() const { return false; }

  // Sets the first step whose result is missing, by SliceId. Called once, before anything else.
  virtual void startAt(std::span<const Step> /*steps*/) {}
};

// Gives the strategy's own memory for gradients that are staged from a device, so that they need
// not be copied once more. By default gradients come to memory of the session.
class StagingTargets {
 public:
  virtual ~StagingTargets() = default;

  // Returns true iff the tensor has a target in every step. Any thread.
  virtual bool has(TensorId /*tensor*/) const { return false; }

  // Returns the target for the gradient of the step for which the tensor's gate was closed last.
  // The gradient is there when the strategy takes its contribution. Fabric's loop. REQUIRES: has()
  virtual std::span<std::byte> targetFor(TensorId /*tensor*/) { return {}; }
};

// The abilities that one strategy has; null: the default. They live as long as
// it.
struct Facets {
  Checkpoint* checkpoint = nullptr;
  DelayedResults* delayedResults = nullptr;
  LossPolicy* losses = nullptr;
  StagingTargets* stagingTargets = nullptr;
  Takeover* takeover = nullptr;
};

}  // namespace sluice::algorithms
