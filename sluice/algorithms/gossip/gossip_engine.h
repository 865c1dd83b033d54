// Training without servers: every worker has a model of its own, makes its own steps and never
// waits; what they say to each other in between draws the models together. The engine behind gosgd
// and adpsgd. A Talk tells these apart; the engine calls it at the end of every step, and
// with every message.
//
// All of it belongs to the fabric's loop.
#pragma once

#include <functional>
#include <memory>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/contribution.h>
#include <sluice/algorithms/outbox.h>
#include <sluice/algorithms/strategy.h>
#include <sluice/base/option.h>

namespace sluice::base::option {
inline constexpr Option kGossipSeed =
    sameOnAllRanks({"gossip-seed", Kind::kInteger, "1",
                    "gosgd, adpsgd: another number gives other draws of when to send and to whom"});
}  // namespace sluice::base::option

namespace sluice {
namespace option = base::option;
}  // namespace sluice

namespace sluice::algorithms {

class Talk {
 public:
  virtual ~Talk() = default;

  // Ends a step. The next forward pass reads worker.parameters as they are when it returns; they do
  // not change before the end of the next step.
  virtual void finish(const WorkerSlice& worker) = 0;

  // Notes that the worker is gone.
  virtual void forget(Rank lost) = 0;

  // Does what fabric::Receiver::onMessage does. The engine has checked that the slice exists, but
  // nothing of what the message says.
  virtual Result<fabric::Landing> onMessage(const plan::Slice& slice, Rank from, fabric::Lane lane,
                                            const wire::Header& header) = 0;
};

// Cuts slices by priority, and notes the seed of all draws; refuses ranks that only serve.
Status chooseGossip(const base::Config& config, plan::PlanSpec& spec);
uint64_t gossipSeed(const plan::PlanSpec& spec);  // REQUIRES: a spec of chooseGossip()

// REQUIRES: checkUpdate(context)
using MakeTalk = std::function<std::unique_ptr<Talk>(Outbox&)>;
std::unique_ptr<Strategy> makeGossip(const Context& context, const MakeTalk& makeTalk);

}  // namespace sluice::algorithms
