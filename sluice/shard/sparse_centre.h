// The server's side of slices that workers change by a few elements at a time (codec/dgc.h): the
// parameters, and what each worker does not know of them yet. Where centre.h answers with all
// parameters, this answers with those that have changed since the last answer to that worker, as
// they are now. So a worker that sets them has the server's parameters, bit for bit, and what it
// had done to its own copy meanwhile is undone: it had told the server of the same elements.
//
// Momentum is inside what arrives, so that a step is x -= rate * part. f32 only. Belongs to one
// loop.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <sluice/plan/plan.h>
#include <sluice/shard/changes.h>

namespace sluice::shard {

class SparseCentre final {
 public:
  // REQUIRES: plan outlives the centre; every tensor is f32.
  SparseCentre(const plan::Plan& plan, Rank self);

  bool serves(SliceId slice) const { return served_[index(slice)] != nullptr; }

  // For all that follows: REQUIRES: the slice is served here, and the rank is a worker.

  // What every worker has, too.
  void setParameters(SliceId slice, std::span<const std::byte> parameters);
  // What no worker has.
  void replaceParameters(SliceId slice, std::span<const std::byte> parameters);
  std::span<const std::byte> parameters(SliceId slice) const {
    return std::as_bytes(std::span(served_[index(slice)]->home));
  }

  // `part` is what a worker's Dgc made; an error says that it is not.
  Status step(SliceId slice, std::span<const std::byte> part, double rate);

  // What is new to the worker, as sparse.h's bytes; from now on it knows.
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
