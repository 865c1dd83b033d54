// GoSGD's bookkeeping for one slice at one worker (Blot et al. 2016). Every worker holds a weight,
// 1/N at first. Who sends gives away half of it, with a copy of its parameters; who receives takes
// the mean of both by weight, and adds the weight to its own. So the sum of all weights, held, on
// their way or waiting, is one at any time, and what is on its way is never lost: a message that
// was refused comes back to its sender as if it had been its own.
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
  // A slice of so many bytes of parameters. REQUIRES: kernel::checkArithmetic(dtype)
  Share(DType dtype, size_t bytes, double weight);

  // Of a message: a weight, then the parameters.
  static size_t messageBytes(size_t parameterBytes) { return sizeof(double) + parameterBytes; }

  double held() const { return weight_; }
  double waiting() const { return waitingWeight_; }  // has come, and is not settled yet
  double leaving() const;                            // of the message under way; 0 if there is none

  // False while the last message is under way, or with next to nothing left to give.
  bool mayGive() const { return !isGiving_ && weight_ > kLeast; }

  // A message with half of the weight. It stays as it is until one of the next two calls. REQUIRES:
  // mayGive()
  std::span<const std::byte> give(std::span<const std::byte> parameters);
  void given() { isGiving_ = false; }  // it is on its way, beyond recall
  void refused();                      // it will never arrive

  // What another has given waits until settle(). On an error nothing has changed.
  Status take(std::span<const std::byte> message);

  // What waits becomes part of the parameters.
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
