// Pauses between attempts: each twice as long as the last, up to a limit, and shorter by up to a half
// at random, so that members that lost the same server do not come back in the same moment.
#pragma once

#include <algorithm>
#include <random>

#include <sluice/base/clock.h>

namespace sluice::membership {

class Pauses final {
 public:
  Pauses(Duration least, Duration most) : least_(least), most_(most), next_(least) {}

  Duration next() {
    const Duration pause = next_;
    next_ = std::min(most_, 2 * next_);
    return std::chrono::duration_cast<Duration>(
        pause * std::uniform_real_distribution<double>(0.5, 1)(random_));
  }
  void reset() { next_ = least_; }

 private:
  Duration least_;
  Duration most_;
  Duration next_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace sluice::membership
