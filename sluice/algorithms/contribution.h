// A worker's part in one step, as the training thread hands it over, and where it waits until an
// engine uses it: contributions, one slice of them, and hyperparameters.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <sluice/base/check.h>
#include <sluice/base/ids.h>
#include <sluice/base/loop.h>
#include <sluice/data/plan/plan.h>

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

// Passes contributions on at once, or holds them until they are taken: a strategy that can take
// nothing back holds them while updates wait for the training thread's word. Belongs to the
// fabric's loop.
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

// One slice at a worker, at the end of a step, as the engines whose workers make their own steps
// hand it to an algorithm. The server's answer, if there was one, is in
// `parameters`.
struct WorkerSlice {
  const plan::Slice& slice;
  Step step;
  std::span<const std::byte> gradient;  // empty if this worker had no gradient
  std::span<std::byte> parameters;
  std::span<const double> values;  // hyperparameters of this step
};

// Hands items on one by one as they come, or, without overlap, all tensors' items together. Belongs
// to the fabric's loop.
template <typename Item>
class Together final {
 public:
  // `atOnce`: how many items go on together, 1 for each by itself.
  explicit Together(size_t atOnce) : atOnce_(atOnce) {}

  // Returns the items that go on now, in the order in which they came.
  [[nodiscard]] std::vector<Item> add(const Item& item) {
    items_.push_back(item);
    return items_.size() < atOnce_ ? std::vector<Item>() : std::exchange(items_, {});
  }

 private:
  const size_t atOnce_;
  std::vector<Item> items_;
};

// Hyperparameters of an optimizer, by the first step they are for.
class ValuesByStep final {
 public:
  explicit ValuesByStep(std::vector<double> first) : values_{{Step{0}, std::move(first)}} {}

  void set(Step from, std::vector<double> values) {
    values_.insert_or_assign(from, std::move(values));
    if (values_.size() > kKept) values_.erase(values_.begin());
  }

  // REQUIRES: `step` is not more than two before the last that any were set for.
  const std::vector<double>& at(Step step) const {
    const auto after = values_.upper_bound(step);
    return (after == values_.begin() ? after : std::prev(after))->second;
  }

 private:
  // The slices of one worker are never more than two steps apart: a slice's part has left before
  // the next one of it, and all gradients of a step are handed over before the next step's.
  static constexpr size_t kKept = 4;
  std::map<Step, std::vector<double>> values_;
};

}  // namespace sluice::algorithms
