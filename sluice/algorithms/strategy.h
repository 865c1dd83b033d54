// A training algorithm at one rank: how gradients become parameters across ranks. A strategy
// composes gates, queue, shard and fabric, and owns no arithmetic. docs/add-an-algorithm.md shows
// how to write one.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <sluice/algorithms/contribution.h>
#include <sluice/algorithms/facets.h>
#include <sluice/base/histogram.h>
#include <sluice/base/status.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::algorithms {

// The fate of a step whose gradients have all been handed over.
enum class Decision : uint8_t { kUpdate, kDrop };

struct Statistics {
  uint64_t bytesWaiting = 0;    // slices that wait for their turn
  uint64_t bytesInFlight = 0;   // credit in use
  base::Histogram inversion{};  // priority inversion time of every slice sent
};

// Every method runs on the fabric's loop. A strategy is made on the training thread.
class Strategy {
 public:
  explicit Strategy(const Facets& facets = {}) : facets_(facets) {}
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // Takes this worker's part in a step of a tensor, whose gate is closed for that step. The
  // gradient must not change until the strategy opens the gate. If no worker has a gradient the
  // gate opens empty, and nothing is updated.
  virtual void contribute(const Contribution& contribution) = 0;

  // Takes one slice of a gradient that comes slice by slice, as from a device: the slice's bytes
  // are in their place, and must not change until the strategy opens the gate; those of other
  // slices may not be there yet. The gate is closed before the first slice. By default the strategy
  // waits for the whole tensor. All-reduces keep the default, since they reduce whole tensors;
  // gossip, since its steps are local; compression with clipping, since that needs the tensor's
  // norm.
  virtual void contributeSlice(const SliceContribution& slice) {
    if (slice.isLast()) contribute({slice.tensor, slice.step, slice.hasGradient});
  }

  // Takes messages as fabric::Receiver::onMessage does.
  virtual Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                            const wire::Header& header) = 0;

  // Sets the update's hyperparameters from step `from` on. No gradient of that step has been handed
  // over yet. Every worker says the same; at a rank that only serves this does nothing.
  virtual Status setHyperparameters(const std::vector<double>& values, Step from) = 0;

  // Says what `tensor` waits for, in words that name ranks: "2 of 5 slices missing: 2 from server
  // rank 3".
  virtual std::string describeWait(TensorId tensor) const = 0;

  virtual Statistics statistics() const { return {}; }

  // Decides the last step, with Context::updatesWaitForWord. All of its gradients have been handed
  // over, with all of their slices, and every worker decides alike. If the step is dropped, every
  // gate opens empty.
  virtual Status decide(Decision /*decision*/) {
    return {Code::kInvalidArgument,
            "this algorithm has no servers that could update; use algorithm=sluice"};
  }

  // `done` runs when nothing of this rank is on its way any more, or with why it never will arrive.
  // Open gates do not say so: a delayed result is not waited for.
  virtual void whenIdle(const Done& done) { done(base::ok()); }

  // Returns the workers that are seen to be in the next step already, while this rank is between
  // two steps.
  virtual std::set<Rank> ahead() const { return {}; }

  // Ends all that is under way: a rank is lost, or somebody has to stop.
  virtual void fail(const Status& /*why*/) {}
  // As fail(), for the step of this number and later ones: another rank takes part no longer.
  virtual void endAfter(uint64_t /*steps*/, const Status& /*why*/) {}

  Checkpoint& checkpoint() const { return facetOr<Checkpoint>(facets_.checkpoint); }
  DelayedResults& delayedResults() const { return facetOr<DelayedResults>(facets_.delayedResults); }
  LossPolicy& losses() const { return facetOr<LossPolicy>(facets_.losses); }
  Takeover& takeover() const { return facetOr<Takeover>(facets_.takeover); }
  StagingTargets& stagingTargets() const { return facetOr<StagingTargets>(facets_.stagingTargets); }

 protected:
  // Sets a facet that is a member of the strategy: it is not constructed yet while Strategy is.
  void setCheckpoint(Checkpoint& checkpoint) { facets_.checkpoint = &checkpoint; }

 private:
  template <typename Facet>
  static Facet& facetOr(Facet* facet) {
    static Facet none;  // has no state
    return facet != nullptr ? *facet : none;
  }

  Facets facets_;
};

}  // namespace sluice::algorithms
