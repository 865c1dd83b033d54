// AD-PSGD's averaging for one slice at one worker (Lian et al. 2018). The worker computes with a
// snapshot, while its *live* parameters meet those of other workers. An active worker sends its
// parameters, the passive worker answers with its own from before the meeting, and both move half
// of the way to the other's. If the active worker's parameters have changed in the meantime, they
// move by half of the way from those that it had *sent*. So a meeting never changes the sum over
// both workers, and with it the mean of all; only gradients do.
//
// No network, no time. Belongs to its owner's loop.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/model.h>

namespace sluice::gossip {

class PairMeeting final {
 public:
  // REQUIRES: kernel::checkArithmetic(dtype)
  PairMeeting(DType dtype, std::span<const std::byte> parameters);

  std::span<std::byte> live() { return live_; }
  bool isUnderWay() const { return isUnderWay_; }

  // The active side: returns the parameters to send, which stay as they are until end() or
  // forget(). REQUIRES: !isUnderWay()
  std::span<const std::byte> begin();
  void end(std::span<const std::byte> theirs);
  void forget() { isUnderWay_ = false; }  // the other worker never got them

  // The passive side: `theirs` becomes the answer. From here on the active side must not forget().
  void meet(std::span<std::byte> theirs);

 private:
  const DType dtype_;
  std::vector<std::byte> live_;
  std::vector<std::byte> sent_;
  bool isUnderWay_ = false;
};

}  // namespace sluice::gossip
