// Training over sharded parameter servers that need not wait for all workers: the engine behind
// asp, ssp and easgd, and behind all that is compressed on its way to servers and back. What tells
// these apart is a Method; the engine moves what it says.
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

#include <sluice/strategy/server/centre_state.h>
#include <sluice/strategy/strategy.h>
#include <sluice/strategy/worker_slice.h>

namespace sluice::strategy {

// What a slice does in one step.
enum class Travel : uint8_t {
  kNothing,  // the worker is left to itself
  kPush,     // its part goes to the server; the worker does not wait
  kAsk,      // its part goes to the server; the worker waits for the answer
};

// At a server: whose part of which slice lies on its desk.
struct ServerSlice {
  const plan::Slice& slice;
  Rank from;
  bool hasPart;                    // false: the worker has nothing to say in this step
  bool asks;                       // it waits for an answer
  std::span<const double> values;  // hyperparameters of that worker's step
};

// How far the copy in an answer lags behind its worker, in steps. Travels in the eight bits of a
// header that are the sender's own.
inline constexpr uint64_t kMostLag = 0xff;

// What parts and answers are on the wire, and where they lie before and after. A worker that has
// asked for an answer sends nothing more of that slice before it is there.
class Freight {
 public:
  virtual ~Freight() = default;

  virtual DType dtypeOf(const plan::Slice& slice) const = 0;  // of its messages

  // A place for something of so many bytes; none, if that cannot be right.
  using Place = std::optional<std::span<std::byte>>;

  // A worker's part of this step; none, if it has nothing to say. Stays as it is until the slice's
  // next.
  virtual std::optional<std::span<const std::byte>> part(const WorkerSlice& worker) = 0;
  // Where the answer lands at a worker.
  virtual Place placeForAnswer(const plan::Slice& slice, uint64_t bytes) = 0;

  // The same at a server, for one of its workers.
  virtual Place placeForPart(const plan::Slice& slice, Rank worker, uint64_t bytes) = 0;
  virtual std::span<const std::byte> answer(const plan::Slice& slice, Rank worker) const = 0;
  // How long every answer is; none, if that differs.
  virtual std::optional<uint64_t> answerBytes(const plan::Slice& slice) const = 0;
};

class Method {
 public:
  virtual ~Method() = default;

  virtual Freight& freight() = 0;

  // True iff servers make steps, and so have to know every worker's hyperparameters.
  virtual bool serversStep() const = 0;

  // Whether these hyperparameters, which the optimizer takes, are any to go on with.
  virtual Status checkValues(std::span<const double> values) const = 0;

  // The server's part in a step of a slice comes once in so many steps, the first included.
  virtual uint64_t period() const = 0;

  virtual Travel travel(SliceId slice, Step step) const = 0;

  // The server's: true iff a worker may send such a part: one without an answer, or one that says
  // nothing.
  virtual bool mayCome(bool hasPart, bool asks) const = 0;

  // The worker's end of the step, before the gate opens. `lag` is the answer's, if there was one.
  // True iff parameters may have changed; an error, if the answer was none.
  virtual Result<bool> finish(const WorkerSlice& worker, Travel travel, uint64_t lag) = 0;

  // The server's: takes in the part that has landed, and says who is to be answered. An error, if
  // it was none.
  virtual Result<std::vector<Rank>> take(const ServerSlice& part) = 0;

  // The server's: freight().answer() is what to send to this worker now. Returns its lag. As late
  // as can be, since others' parts that have come meanwhile are in it.
  virtual uint64_t prepareAnswer(SliceId slice, Rank to) = 0;

  // As Strategy's.
  virtual std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const = 0;

  // True iff workers go on without one that is lost.
  virtual bool goesOnWithoutLost() const = 0;

  // The server's, of a worker that is gone: says who is to be answered now that nobody waits for
  // it.
  virtual std::vector<Rank> forget(SliceId slice, Rank lost) = 0;

  // For whom `slice` keeps its workers waiting; empty if it does not. At its server.
  virtual std::string describeWait(SliceId slice) const = 0;

  // For checkpoints.

  // Whether servers hold parameters, and whether those of workers are copies of them.
  enum class Centre : uint8_t { kNone, kOfItsOwn, kCopiedByWorkers };
  virtual Centre centre() const = 0;

  // At a server. REQUIRES: there is a centre.
  struct Held {
    std::span<const std::byte> parameters;
    const optimizer::OptimizerState* optimizer;  // null: it makes plain steps
  };
  virtual Held held(SliceId slice) const = 0;
  virtual void hold(SliceId slice, const Held& held) = 0;

  // What a worker has of its own besides parameters; null: nothing.
  virtual OwnState* own() = 0;
};

// Slices by priority, sharded and rotated: as `sluice` cuts.
Status chooseAsynchronous(const base::Config& config, plan::PlanSpec& spec);

// Takes the option survive-loss, of methods that can do either. Refuses it where every worker
// serves.
Status chooseSurvival(const base::Config& config, plan::PlanSpec& spec);
bool survivesLoss(const plan::PlanSpec& spec);

// REQUIRES: checkUpdate(rooms)
std::unique_ptr<Strategy> makeAsynchronous(const Rooms& rooms, std::unique_ptr<Method> method);

}  // namespace sluice::strategy
