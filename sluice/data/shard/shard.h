// The server's side of the slices that live on one rank: collect every worker's part, reduce them
// in rank order, update. The owner of the shard brings the parts and publishes the results; the
// shard knows no network.
//
// Belongs to one loop.
//
// Memory: for each slice served here, one landing buffer for every other worker, and the home of
// the result. With servers on all ranks that is about one model per rank, whatever the number of
// ranks.
//
// One step at a time is enough: a worker pushes the next step's part of a slice only after it has
// this step's result, and the result exists only after every worker's part was in. So no part of
// the next step can arrive before this step's slice is finished, and no result is overwritten
// before everybody has it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/plan.h>
#include <sluice/data/shard/served_state.h>
#include <sluice/observer.h>

namespace sluice::shard {

class Shard final {
 public:
  // `update` says what becomes of the mean gradient. Refuses a model with a type that cannot be
  // summed. REQUIRES: plan, clock and observer (which may be null) outlive the shard.
  static Result<std::unique_ptr<Shard>> make(const plan::Plan& plan, Rank self,
                                             optimizer::OptimizerSpec update, const Clock& clock,
                                             StageObserver* observer);

  // Sets the slice's first parameters, with which every rank begins. Not needed if the update
  // publishes gradients.
  void setParameters(SliceId slice, std::span<const std::byte> parameters);

  // Makes `step` the first one that is collected of the slice. REQUIRES: no part has come.
  void startAt(SliceId slice, Step step) { served(slice).step = step; }

  // Sets the hyperparameters from step `from` on, in the order of the optimizer's list. Earlier
  // steps that are being collected keep the earlier values. Refuses a step that is finished, or far
  // ahead.
  Status setHyperparameters(std::vector<double> values, Step from);

  // Returns the place for the part of `from`, or the reason why it is not taken: the slice is not
  // served here, the rank is not a worker, another step is being collected, the rank has sent its
  // part already, or the part does not have the slice's length.
  Result<std::span<std::byte>> landing(SliceId slice, Rank from, Step step, uint64_t bytes);

  // Says that the part for which landing() made room is there. True iff it was the last one
  // missing: the slice is then reduced and updated, and result() is to be published.
  bool arrived(SliceId slice, Rank from);

  // Does the same for a part that lies in this process already. The part must not change until the
  // slice is finished.
  Result<bool> contribute(SliceId slice, Rank from, Step step, std::span<const std::byte> part);

  // Says that the worker has no gradient for this step: its part counts as zeros, and takes no
  // bytes.
  Result<bool> contributeNothing(SliceId slice, Rank from, Step step);

  // Says that the worker vetoes this step: once every part is in, nothing is updated.
  Result<bool> contributeVeto(SliceId slice, Rank from, Step step);

  // True iff no worker had a gradient in the slice's last finished step, or one had a veto: then
  // nothing was updated, and there is no result to publish.
  bool isEmpty(SliceId slice) const { return served(slice).lastWasEmpty; }

  // Returns the updated parameters, or the mean gradient. The result stays until the last part of
  // the next step arrives.
  std::span<const std::byte> result(SliceId slice) const;

  // For a checkpoint, between two steps of this rank: states() returns the optimizer's memory of
  // the slices served here, and restore() puts it back on a shard of the same plan. A slice that is
  // not among `states` begins anew. On an error nothing has changed.
  std::vector<ServedState> states() const;
  Status restore(std::vector<ServedState> states);

  // Returns the ranks whose parts are here, or landing, for steps that are being collected.
  std::set<Rank> contributors() const;

  // Returns the ranks whose parts of a slice that is being collected are missing. Empty if no part
  // is here yet, or if all are.
  std::vector<Rank> missing(SliceId slice) const;

 private:
  enum class PartState : uint8_t { kMissing, kLanding, kHere };

  // One slice that is served here.
  struct Served {
    Step step{0};          // being collected
    uint32_t arrived = 0;  // parts that are here
    uint32_t empty = 0;    // of these, parts of workers without a gradient
    bool isVetoed = false;
    bool lastWasEmpty = false;
    std::vector<PartState> states;  // by worker position, like the next two
    std::vector<std::span<const std::byte>> parts;
    std::vector<std::unique_ptr<std::byte[]>> buffers;  // null for this rank's own part
    std::vector<std::byte> home;                        // the result
    optimizer::OptimizerState state;
  };

  Shard(const plan::Plan& plan, Rank self, optimizer::OptimizerSpec update, const Clock& clock,
        StageObserver* observer);

  Status check(SliceId slice, Rank from, Step step, uint64_t bytes) const;
  uint64_t bytesOf(SliceId slice) const;  // 0 if it is not served here
  bool add(SliceId slice, Rank from, std::span<const std::byte> part);
  void finish(const plan::Slice& slice, Served& served);
  void update(const plan::Slice& slice, Served& served);
  Served& served(SliceId slice) { return *served_[index(slice)]; }
  const Served& served(SliceId slice) const { return *served_[index(slice)]; }

  // Constant after construction.
  const plan::Plan& plan_;
  const Rank self_;
  const plan::Stages stages_;
  const double meanScale_;

  const std::vector<double>& valuesFor(Step step) const;

  const optimizer::OptimizerSpec update_;
  std::map<Step, std::vector<double>> values_;   // hyperparameters, by the first step they are for
  std::vector<std::unique_ptr<Served>> served_;  // by SliceId; null: lives elsewhere
  std::vector<std::byte> accumulator_;           // of the slice that is being reduced
  std::vector<std::byte> zeros_;  // the part of a worker without a gradient; made when needed
};

}  // namespace sluice::shard
