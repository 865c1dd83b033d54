// What a rank's training thread does. Each rank tells the others with its pulse
// (transport/fabric/watch/pulse_thread.h), so that a rank that waits can say where the missing one
// is.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <sluice/base/clock.h>

namespace sluice::base {

// Part of the wire format: never renumber.
enum class Doing : uint8_t {
  kUnknown = 0,   // nothing was said
  kUserCode = 1,  // its last call of sluice has ended
  kForward = 2,
  kEvaluation = 3,  // a forward pass without gradients
  kBackward = 4,
  kStep = 5,  // step() of the optimizer
  kGate = 6,  // waits for the results of a step
  kGather = 7,
  kBroadcast = 8,
  kMean = 9,
  kBarrier = 10,
  kBuffers = 11,  // the exchange before a forward pass
  kPlan = 12,     // the ranks agree on what is trained
  kCheckpoint = 13,
  kLeaving = 14,
  kElsewhere = 15,  // last: also what this version has no name for
};

// Returns the kind with this number on the wire, kElsewhere for a number that has no kind.
Doing doingOf(uint8_t number);

struct Whereabouts {
  Doing doing = Doing::kUnknown;
  uint64_t step = 0;  // 0 if the kind has none
  Duration since{};   // for how long it has been there
  friend bool operator==(const Whereabouts&, const Whereabouts&) = default;
};

// Returns the place without its time, to follow "rank 1 has been": "in the forward pass of step 4".
std::string describe(const Whereabouts& where);

// Returns a time for people: "0.4 s", "12 s".
std::string describeSince(Duration since);

// What this process's training thread does now. All of it is one atomic number, so that a change
// costs one store and a reading of the clock. If several threads train, the last call of any of
// them counts.
//
// Thread safety: any thread.
class TrainingThread final {
 public:
  // What it did before, for leave(); zero is user code.
  enum class Before : uint64_t {};

  // REQUIRES: `clock` outlives this.
  explicit TrainingThread(const Clock& clock);

  // Begins a call. A gather or broadcast inside a call with a name of its own keeps that name.
  Before enter(Doing doing, uint64_t step = 0);
  // Ends the call: the thread is back where it was, or in user code from now on.
  void leave(Before before);
  // Notes that a call has ended that never waits, and has no place of its own.
  void pass();

  Whereabouts now() const;

  // A call from beginning to end. `thread` may be null: then nobody is told.
  class Call final {
   public:
    Call(TrainingThread* thread, Doing doing, uint64_t step = 0)
        : thread_(thread), before_(thread == nullptr ? Before{} : thread->enter(doing, step)) {}
    ~Call() {
      if (thread_ != nullptr) thread_->leave(before_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    TrainingThread* const thread_;
    const Before before_;
  };

 private:
  uint64_t pack(Doing doing, uint64_t step) const;

  const Clock& clock_;
  std::atomic<uint64_t> word_;
};

}  // namespace sluice::base
