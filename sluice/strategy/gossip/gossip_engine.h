// Training without servers: every worker has a model of its own, makes its own steps and never
// waits; what they say to each other in between draws the models together. The engine behind gosgd
// and adpsgd. A Talk tells these apart; the engine calls it at the end of every step, and
// with every message.
//
// All of it belongs to the fabric's loop.
#pragma once

#include <functional>
#include <memory>

#include <sluice/strategy/context.h>
#include <sluice/strategy/outbox.h>
#include <sluice/strategy/strategy.h>
#include <sluice/strategy/worker_slice.h>

namespace sluice::strategy {

class Talk {
 public:
  virtual ~Talk() = default;

  // The end of a step. The next forward pass reads worker.parameters as they are when it returns;
  // they do not change before the end of the next step.
  virtual void finish(const WorkerSlice& worker) = 0;

  // The worker is gone.
  virtual void forget(Rank lost) = 0;

  // About a slice that there is, from a worker.
  virtual Result<fabric::Landing> onMessage(const plan::Slice& slice, Rank from, fabric::Lane lane,
                                            const wire::Header& header) = 0;
};

// Slices by priority; refuses ranks that only serve.
Status chooseGossip(const base::Config& config, plan::PlanSpec& spec);

// REQUIRES: checkUpdate(context)
using MakeTalk = std::function<std::unique_ptr<Talk>(Outbox&)>;
std::unique_ptr<Strategy> makeGossip(const Context& context, const MakeTalk& makeTalk);

// Returns a reproducible pseudo-random number for (seed, rank, step).
uint64_t drawAt(uint64_t seed, Rank rank, Step step);

}  // namespace sluice::strategy
