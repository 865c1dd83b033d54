// The place where a rank of a replay keeps its tensors and computes: the host's memory, or a device.
// The rank's training thread calls it.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include <sluice/session.h>

#include <sluice/base/clock.h>
#include <tools/bench/replay_memory.h>

namespace sluice::bench {

class ReplayPlace {
 public:
  virtual ~ReplayPlace() = default;

  // Makes the tensors of this rank, and says in `options` where they lie.
  virtual void makeTensors(const Model& model, Rank rank, SessionOptions& options) = 0;
  // Begins the first iteration now. REQUIRES: `session` outlives all other calls but
  // parametersHash().
  virtual void start(Session& session) = 0;

  // Waits for the gate of a tensor, then computes the tensor's part of the forward pass.
  virtual Status forward(TensorId tensor, Duration work) = 0;
  // Computes the tensor's part of the backward pass, then hands over its gradient.
  virtual Status backward(TensorId tensor, Duration work) = 0;
  // Returns the moment at which everything so far is computed.
  virtual TimePoint finish() = 0;

  // Returns the hash of the results (ReplayMemory). REQUIRES: all have come.
  virtual std::string parametersHash() = 0;
};

// Computing that is replayed instead of done: when each piece would begin and end. A pure value.
//
// A replay sleeps until the end of each piece. Sleeping ends late, by microseconds or, on a busy
// machine, by more; since the next piece begins where the last one *should* have ended, the delays
// do not add up.
class Timeline final {
 public:
  explicit Timeline(TimePoint start) : end_(start) {}

  // Delays the next piece until this moment: a gate was closed until then.
  void holdUntil(TimePoint opened) { end_ = std::max(end_, opened); }

  // Adds one piece of work. Returns the moment at which it ends.
  TimePoint compute(Duration work) { return end_ += work; }

  TimePoint end() const { return end_; }

 private:
  TimePoint end_;
};

// Tensors in the host's memory. The training thread sleeps instead of computing.
class HostPlace final : public ReplayPlace {
 public:
  void makeTensors(const Model& model, Rank rank, SessionOptions& options) override;
  void start(Session& session) override;
  Status forward(TensorId tensor, Duration work) override;
  Status backward(TensorId tensor, Duration work) override;
  TimePoint finish() override { return timeline_->end(); }
  std::string parametersHash() override { return memory_->parametersHash(); }

 private:
  void compute(Duration work);

  Session* session_ = nullptr;
  std::optional<ReplayMemory> memory_;
  std::optional<Timeline> timeline_;
};

// Sleeps until this moment. A thread that calls it often first calls sleepPrecisely().
void sleepUntil(TimePoint when);
// The kernel does not put this thread's wake-ups together with others from now on.
void sleepPrecisely();

}  // namespace sluice::bench
