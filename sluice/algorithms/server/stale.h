// Servers that apply every gradient as it arrives, and workers that may be some steps apart: the
// method behind asp and ssp (asynchronous.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <sluice/algorithms/server/answering.h>

namespace sluice::algorithms {

enum class Pulls : uint8_t {
  kAlways,  // after every push
  // Pulls only when the worker's copy is older than the bound allows. In between the worker makes
  // its own steps, x -= lr * g, which the next pull replaces.
  kWhenTooStale,
};

// The payloads to servers and back, and their use there: plain gradients and parameters
// (plain_stale.cc), or compressed ones (dgc/stale_server.h).
class StaleForm : public HeldCentre {
 public:
  virtual PayloadFormat& format() = 0;
  virtual Status checkValues(std::span<const double> values) const = 0;

  // Makes a step of the server's optimizer from the part that has landed.
  virtual Status step(const ServerSlice& part) = 0;
  // Makes the slice, as it is now at the server, the worker's answer.
  virtual void prepareAnswer(SliceId slice, Rank worker) = 0;

  // Takes an answer that has landed at a worker.
  virtual Status takeAnswer(const WorkerSlice& worker) = 0;
  // Makes a worker's own step between two answers. True iff it made one.
  virtual Result<bool> ownStep(const WorkerSlice& worker) = 0;

  // Does what AnswerPolicy::own() does.
  virtual OwnState* own() = 0;
};

// The keeper of SGD's momentum.
enum class MomentumAt : uint8_t {
  kServer,   // one velocity, of all workers' steps as they come
  kWorkers,  // each worker has its own, of its own steps, and sends the direction of a step
  kNone,     // plain steps
};

// REQUIRES: checkUpdate(context); SGD, unless the momentum is at the server
std::unique_ptr<StaleForm> makePlainStale(const Context& context, MomentumAt momentum);

// Nobody is more than `bound` steps ahead of the slowest (shard/staleness.h).
std::unique_ptr<Strategy> makeStale(const Context& context, std::unique_ptr<StaleForm> form,
                                    uint64_t bound, Pulls pulls);

}  // namespace sluice::algorithms
