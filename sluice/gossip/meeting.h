// AD-PSGD's averaging for one slice at one worker (Lian et al. 2018). The worker computes with a
// snapshot, while the *live* parameters meet those of others: an active worker sends what it has,
// the passive one answers with what it had, and both go half of the way to the other's. If the
// active one's have changed in the meantime, it goes half of the way from what it had *sent*: so
// the sum over both, and with it the mean of all, is never changed by a meeting, only by gradients.
//
// No network, no time. Belongs to its owner's loop.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/model.h>

namespace sluice::gossip {

class Meeting final {
 public:
  // REQUIRES: kernel::checkArithmetic(dtype)
  Meeting(DType dtype, std::span<const std::byte> parameters);

  std::span<std::byte> live() { return live_; }
  bool isUnderWay() const { return isUnderWay_; }

  // The active side: what to send; stays as it is until end() or forget(). REQUIRES: !isUnderWay()
  std::span<const std::byte> begin();
  void end(std::span<const std::byte> theirs);
  void forget() { isUnderWay_ = false; }  // the other never got it

  // The passive side: `theirs` becomes the answer. From here on the other must not be forgotten.
  void meet(std::span<std::byte> theirs);

 private:
  const DType dtype_;
  std::vector<std::byte> live_;
  std::vector<std::byte> sent_;
  bool isUnderWay_ = false;
};

}  // namespace sluice::gossip
