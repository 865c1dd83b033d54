// The rules of an algorithm whose servers answer each worker by itself (answering.h): when a worker
// sends its part of a slice and whether it waits, what a server does with a part, and whom it
// answers. asp, ssp, easgd and DGC over servers are such policies. Belongs to the fabric's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sluice/algorithms/contribution.h>
#include <sluice/algorithms/server/centre_state.h>
#include <sluice/algorithms/server/payload_format.h>
#include <sluice/base/status.h>
#include <sluice/data/plan/plan.h>

namespace sluice::algorithms {

// The way of a slice in one step.
enum class Travel : uint8_t {
  kNothing,  // the worker is left to itself
  kPush,     // its part goes to the server; the worker does not wait
  kAsk,      // its part goes to the server; the worker waits for the answer
};

// A worker's part of a slice, which has landed at the slice's server.
struct ServerSlice {
  const plan::Slice& slice;
  Rank from;
  bool hasPart;                    // false: the worker has nothing to say in this step
  bool asks;                       // it waits for an answer
  std::span<const double> values;  // hyperparameters of that worker's step
};

// The parameters that a server holds, for checkpoints.
class HeldCentre {
 public:
  struct Held {
    std::span<const std::byte> parameters;
    const optimizer::OptimizerState* optimizer;  // null: it makes plain steps
  };
  virtual ~HeldCentre() = default;
  virtual Held held(SliceId slice) const = 0;
  virtual void hold(SliceId slice, const Held& held) = 0;
};

class AnswerPolicy {
 public:
  struct Traits {
    bool serversStep =
        false;  // servers make steps, and so have to know every worker's hyperparameters
    bool copiesCentre = false;  // the parameters of workers are copies of the servers'
    bool survivesLoss = false;  // workers go on without one that is lost
    uint64_t period =
        1;  // the server takes part in every period-th step of a slice, beginning with step 0
  };

  virtual ~AnswerPolicy() = default;

  virtual PayloadFormat& format() = 0;
  virtual Travel travel(SliceId slice, Step step) const = 0;

  // At a worker, at the end of a step and before the gate opens. `lag` is the answer's, if there
  // was one. Returns true iff parameters may have changed, or an error if the answer cannot be
  // decoded.
  virtual Result<bool> finish(const WorkerSlice& worker, Travel travel, uint64_t lag) = 0;

  // At a server: takes in the part that has landed, and returns the workers that are to be
  // answered. Returns an error if the part cannot be decoded.
  virtual Result<std::vector<Rank>> take(const ServerSlice& part) = 0;

  virtual Traits traits() const { return {}; }

  // Rejects hyperparameters that the optimizer accepts but this policy cannot use.
  virtual Status checkValues(std::span<const double> /*values*/) const { return base::ok(); }

  // At a server: true iff a worker may send such a part.
  virtual bool mayCome(bool hasPart, bool asks) const { return hasPart && asks; }

  // At a server: makes format().answer() the answer to this worker, as late as possible, since
  // others' parts that have come meanwhile are in it. Returns how many steps the copy in it lags
  // behind the worker.
  virtual uint64_t prepareAnswer(SliceId /*slice*/, Rank /*to*/) { return 0; }

  // At a server, of a worker that is gone: returns the workers to answer now that nobody waits for
  // it.
  virtual std::vector<Rank> forget(SliceId /*slice*/, Rank /*lost*/) { return {}; }

  // Does what LossPolicy::firstStepWithout() does.
  virtual std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const {
    return stepsOfOther;
  }

  // At a server: says for whom `slice` keeps its workers waiting; empty if it does not.
  virtual std::string describeWait(SliceId /*slice*/) const { return {}; }

  // Returns the centre, for checkpoints; null if servers hold no parameters.
  virtual HeldCentre* centre() { return nullptr; }
  // Returns the state that a worker keeps besides parameters; null if it keeps nothing.
  virtual OwnState* own() { return nullptr; }
};

}  // namespace sluice::algorithms
