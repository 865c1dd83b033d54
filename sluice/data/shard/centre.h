// The server's side of slices whose workers do not wait for each other: the centre's parameters,
// and for each worker a *desk*, where its part lands and from which its answer leaves. The owner of
// the centre brings the parts and sends the answers; the centre knows no network.
//
// Belongs to one loop.
//
// Memory: for each slice served here, its parameters and a desk for every worker. With servers on
// all ranks that is about one model per rank, as with synchronous servers (shard.h).
//
// One desk serves both ways: a worker that has asked for an answer sends nothing more of that slice
// before the answer is there, and until then nobody else touches its desk.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/plan.h>

namespace sluice::shard {

class Centre final {
 public:
  // REQUIRES: plan outlives the centre; every tensor's type is one to calculate with
  // (kernel/reduce.h).
  Centre(const plan::Plan& plan, Rank self, optimizer::OptimizerSpec update);

  bool serves(SliceId slice) const { return served_[index(slice)] != nullptr; }

  // For all that follows: REQUIRES: the slice is served here, and the rank is a worker.

  // Sets the slice's first parameters, with which every rank begins.
  void setParameters(SliceId slice, std::span<const std::byte> parameters);
  std::span<const std::byte> parameters(SliceId slice) const { return served_[index(slice)]->home; }

  // The optimizer's memory of the slice, for a checkpoint. REQUIRES: a state of such a slice.
  const optimizer::OptimizerState& state(SliceId slice) const {
    return served_[index(slice)]->state;
  }
  void setState(SliceId slice, optimizer::OptimizerState state) {
    served_[index(slice)]->state = std::move(state);
  }

  std::span<std::byte> desk(SliceId slice, Rank worker) const;

  // Makes one step of the optimizer with the gradient on the worker's desk. REQUIRES: checked
  // `values`.
  void step(SliceId slice, Rank worker, std::span<const double> values);

  // Draws the worker's parameters on its desk and the centre's together by alpha (kernel/mix.h).
  void drawTogether(SliceId slice, Rank worker, double alpha);

  // Copies the centre's parameters, as they are now, to the worker's desk.
  void copyToDesk(SliceId slice, Rank worker);

 private:
  struct Served {
    std::vector<std::byte> home;
    optimizer::OptimizerState state;
    std::vector<std::unique_ptr<std::byte[]>> desks;  // by worker position
  };

  DType dtypeOf(SliceId slice) const { return plan_.model()[plan_.slice(slice).tensor].dtype; }

  const plan::Plan& plan_;
  const optimizer::OptimizerSpec update_;
  std::vector<std::unique_ptr<Served>> served_;  // by SliceId; null: lives elsewhere
  std::vector<std::byte> accumulator_;           // of the gradient that is being applied
};

}  // namespace sluice::shard
