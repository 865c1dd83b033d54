// Training over sharded parameter servers that do not wait for all workers: the engine behind asp, ssp and
// easgd. What tells these apart is a Method; the engine moves what it says.
//
//   worker   gradientReady -> a part of each slice to its server, as the method says
//   server   a part is here -> the method takes it in -> answers to those who may go on
//   worker   the last slice of a tensor is through with its step -> open its gate
//
// All of it belongs to the fabric's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sluice/shard/centre.h>
#include <sluice/strategy/strategy.h>

namespace sluice::strategy {

// What a slice does in one step.
enum class Travel : uint8_t {
  kNothing,  // the worker is left to itself
  kPush,     // its part goes to the server; the worker does not wait
  kAsk,      // its part goes to the server; the worker waits for the answer
};

// What a worker sends.
enum class Part : uint8_t { kGradient, kParameters };

// One slice at a worker, at the end of a step. What the server has answered, if anything, is in `parameters`.
struct WorkerSlice {
  const plan::Slice& slice;
  Step step;
  std::span<const std::byte> gradient;  // empty: this worker had none
  std::span<std::byte> parameters;
  std::span<const double> values;  // hyperparameters of this step
};

// At a server: whose part of which slice lies on its desk.
struct ServerSlice {
  const plan::Slice& slice;
  Rank from;
  bool hasGradient;                // false, of a method that sends gradients: there is none on the desk
  bool asks;                       // it waits for an answer
  std::span<const double> values;  // hyperparameters of that worker's step
};

// How far the copy in an answer lags behind its worker, in steps. Travels in the eight bits of a header that
// are the sender's own.
inline constexpr uint64_t kMostLag = 0xff;

// The desk of `to` holds what to send.
struct Reply {
  Rank to;
  uint64_t lag;
};

class Method {
 public:
  virtual ~Method() = default;

  virtual Part part() const = 0;

  // The server's part in a step of a slice comes once in so many steps, the first included.
  virtual uint64_t period() const = 0;

  virtual Travel travel(SliceId slice, Step step) const = 0;

  // The worker's end of the step, before the gate opens. `lag` is the answer's, if there was one.
  virtual void finish(const WorkerSlice& worker, Travel travel, uint64_t lag) = 0;

  // The server's: takes in what lies on the desk, and says who is to be answered.
  virtual std::vector<Reply> take(const ServerSlice& part, shard::Centre& centre) = 0;

  // As Strategy's.
  virtual std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const = 0;

  // True iff workers go on without one that is lost.
  virtual bool goesOnWithoutLost() const = 0;

  // The server's, of a worker that is gone: says who is to be answered now that nobody waits for it.
  virtual std::vector<Reply> forget(SliceId slice, Rank lost, shard::Centre& centre) = 0;

  // For whom `slice` keeps its workers waiting; empty if it does not. At its server.
  virtual std::string describeWait(SliceId slice) const = 0;
};

// Slices by priority, sharded and rotated: as `sluice` cuts.
Status chooseAsynchronous(const Config& config, plan::PlanSpec& spec);

// Takes the option survive-loss, of methods that can do either. Refuses it where every worker serves.
Status chooseSurvival(const Config& config, plan::PlanSpec& spec);
bool survivesLoss(const plan::PlanSpec& spec);

// Refuses an update that leaves the step to the user's own optimizer, since there is no mean gradient to give
// it, and a model with a type that cannot be calculated with.
Status checkUpdate(const Rooms& rooms);

// REQUIRES: checkUpdate(rooms)
std::unique_ptr<Strategy> makeAsynchronous(const Rooms& rooms, std::unique_ptr<Method> method);

}  // namespace sluice::strategy
