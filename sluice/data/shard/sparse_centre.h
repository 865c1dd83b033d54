// The server's side of slices that workers change by a few elements at a time (codec/dgc.h): the
// parameters, and for each worker the parameters that it does not know yet. A Centre (centre.h)
// answers with all parameters. A SparseCentre answers with those that have changed since the last
// answer to that worker, as they are now. So a worker that sets them has the server's parameters,
// bit for bit. That also undoes the worker's own changes to its copy: it had told the server of the
// same elements.
//
// The parts contain the momentum, so that a step is x -= rate * part. f32 only. Belongs to one
// loop.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <sluice/data/plan/plan.h>
#include <sluice/data/shard/changes.h>

namespace sluice::shard {

class SparseCentre final {
 public:
  // REQUIRES: plan outlives the centre; every tensor is f32.
  SparseCentre(const plan::Plan& plan, Rank self);

  bool serves(SliceId slice) const { return served_[index(slice)] != nullptr; }

  // For all that follows: REQUIRES: the slice is served here, and the rank is a worker.

  // Sets parameters that all workers hold already.
  void setParameters(SliceId slice, std::span<const std::byte> parameters);
  // Replaces the parameters; each worker's next answer holds all of them.
  void replaceParameters(SliceId slice, std::span<const std::byte> parameters);
  std::span<const std::byte> parameters(SliceId slice) const {
    return std::as_bytes(std::span(served_[index(slice)]->home));
  }

  // Applies `part`, which a worker's Dgc made; an error if it is not such a part.
  Status step(SliceId slice, std::span<const std::byte> part, double rate);

  // Returns the parameters that are new to the worker, as sparse.h's bytes. From now on it knows
  // them.
  std::vector<std::byte> newsFor(SliceId slice, Rank worker);

 private:
  struct Served {
    std::vector<float> home;
    Changes changes;
  };

  const plan::Plan& plan_;
  std::vector<std::unique_ptr<Served>> served_;  // by SliceId; null: lives elsewhere
};

}  // namespace sluice::shard
