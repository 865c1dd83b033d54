// GoSGD's bookkeeping for one slice at one worker (Blot et al. 2016). Every worker holds a weight,
// 1/N at first. A sender gives away half of its weight, with a copy of its parameters. A receiver
// takes the mean of both parameters by weight, and adds the weight to its own. So the sum of all
// weights, held, on their way or waiting, is one at any time. No message is lost: a refused message
// comes back to its sender as if another worker had given it.
//
// No network, no time. Belongs to its owner's loop.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/model.h>

namespace sluice::gossip {

class Share final {
 public:
  // Makes the share of a slice with `bytes` bytes of parameters. REQUIRES:
  // kernel::checkArithmetic(dtype)
  Share(DType dtype, size_t bytes, double weight);

  // Returns the length of a message: a weight, then the parameters.
  static size_t messageBytes(size_t parameterBytes) { return sizeof(double) + parameterBytes; }

  double held() const { return weight_; }
  double waiting() const { return waitingWeight_; }  // has come, and is not settled yet
  double leaving() const;                            // of the message under way; 0 without one

  // False while the last message is under way, or with next to nothing left to give.
  bool mayGive() const { return !isGiving_ && weight_ > kLeast; }

  // Returns a message with half of the weight. The message stays as it is until one of the next two
  // calls. REQUIRES: mayGive()
  std::span<const std::byte> give(std::span<const std::byte> parameters);
  void given() { isGiving_ = false; }  // it is on its way, beyond recall
  void refused();                      // it will never arrive

  // Takes in another worker's message, which waits until settle(). On an error nothing has changed.
  Status take(std::span<const std::byte> message);

  // Mixes the waiting messages into the parameters, and adds their weight.
  void settle(std::span<std::byte> parameters);

 private:
  static constexpr double kLeast = 1e-200;

  void add(std::span<const std::byte> message);

  const DType dtype_;
  double weight_;
  double waitingWeight_ = 0;
  std::vector<std::byte> waiting_;  // the mean of what waits, by weight
  std::vector<std::byte> message_;
  bool isGiving_ = false;
};

}  // namespace sluice::gossip
