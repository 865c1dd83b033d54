// A worker's part in one step of a tensor, as the training thread hands it over. A strategy that
// can take nothing back holds contributions while updates wait for the training thread's word.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include <sluice/base/check.h>
#include <sluice/base/loop.h>
#include <sluice/base/types/ids.h>

namespace sluice::algorithms {

struct Contribution {
  TensorId tensor{};
  Step step{};
  bool hasGradient = false;  // false: counts as zeros
};

// One slice of a gradient that comes slice by slice, in any order. Every slice of the tensor comes
// once in the step, except those that have their result already (Takeover).
struct SliceContribution {
  TensorId tensor{};
  SliceId slice{};
  Step step{};
  size_t come = 0;          // slices of the tensor that have come in this step, this one among them
  size_t slices = 0;        // that come in this step
  bool hasGradient = true;  // false: counts as zeros; the same for all slices of the tensor

  bool isFirst() const { return come == 1; }
  bool isLast() const { return come == slices; }
};

// Passes contributions on at once, or holds them until they are taken. Belongs to the fabric's
// loop.
class HeldContributions final {
 public:
  using Begin = std::function<void(const Contribution&)>;
  HeldContributions(const Loop& loop, bool waitsForWord, Begin begin)
      : loop_(loop), waitsForWord_(waitsForWord), begin_(std::move(begin)) {}

  void add(const Contribution& contribution) {
    SLUICE_DCHECK(loop_.inLoop());
    if (waitsForWord_) {
      held_.push_back(contribution);
    } else {
      begin_(contribution);
    }
  }

  // Returns the contributions that wait for decide(), in the order of backward.
  std::vector<Contribution> take() {
    SLUICE_DCHECK(loop_.inLoop());
    return std::exchange(held_, {});
  }

 private:
  const Loop& loop_;
  const bool waitsForWord_;
  const Begin begin_;
  std::vector<Contribution> held_;
};

}  // namespace sluice::algorithms
