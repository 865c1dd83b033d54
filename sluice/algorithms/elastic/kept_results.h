// The last result of every slice, in memory that the training program cannot change. A member that
// lacks a result when another member is lost gets it from here.
//
// One buffer for each slice is enough. The result of step k+1 exists only after every member has
// contributed to step k+1, and each did so only once it had the result of step k. So nobody asks for
// the result of step k any more when that of step k+1 begins to land in its place.
//
// Memory: one model of gradients. Belongs to one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sluice/data/plan/plan.h>

namespace sluice::algorithms {

// The last result of a slice that a member has.
struct LastResult {
  uint64_t steps = 0;    // results so far: the next one is of the step of this number
  Epoch made{};          // the epoch whose members the last one counts
  bool isEmpty = false;  // no member had a gradient
};

class KeptResults final {
 public:
  explicit KeptResults(const plan::Plan& plan);

  const LastResult& last(SliceId slice) const { return slices_[index(slice)].last; }
  size_t sliceCount() const { return slices_.size(); }

  // Returns the bytes of the last result. REQUIRES: there is one, it is not empty, and nothing has
  // landed since.
  std::span<const std::byte> bytes(SliceId slice) const { return slices_[index(slice)].bytes; }

  // Returns the place in which the slice's next result lands.
  std::span<std::byte> landing(SliceId slice);
  bool isLanding(SliceId slice) const { return slices_[index(slice)].isLanding; }
  // The next result is whole, in that place. Returns its bytes.
  std::span<const std::byte> landed(SliceId slice, Epoch made);
  // The next result is whole, elsewhere: copies it.
  void store(SliceId slice, Epoch made, std::span<const std::byte> result);
  // No member has a gradient in the slice's next step.
  void storeEmpty(SliceId slice, Epoch made);

  // Results that are landing will not come.
  void abandonLandings();

 private:
  struct Slice {
    std::vector<std::byte> bytes;
    LastResult last{};
    bool isLanding = false;
  };
  void count(Slice& slice, Epoch made, bool isEmpty);

  std::vector<Slice> slices_;  // by SliceId
};

}  // namespace sluice::algorithms
