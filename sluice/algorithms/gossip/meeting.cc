#include <sluice/algorithms/gossip/meeting.h>

#include <cstring>

#include <sluice/base/check.h>
#include <sluice/data/kernel/mix.h>

namespace sluice::gossip {

PairMeeting::PairMeeting(DType dtype, std::span<const std::byte> parameters)
    : dtype_(dtype), live_(parameters.begin(), parameters.end()), sent_(parameters.size()) {}

std::span<const std::byte> PairMeeting::begin() {
  SLUICE_CHECK(!isUnderWay_);
  isUnderWay_ = true;
  std::memcpy(sent_.data(), live_.data(), live_.size());
  return sent_;
}

void PairMeeting::end(std::span<const std::byte> theirs) {
  SLUICE_CHECK(isUnderWay_);
  isUnderWay_ = false;
  // The move is made from what was sent and not from what is live now: steps that this worker
  // has made since stay in full, and both sides still move by the same amount.
  kernel::moveHalfway(dtype_, live_, /*from=*/sent_, /*to=*/theirs);
}

void PairMeeting::meet(std::span<std::byte> theirs) {
  SLUICE_CHECK(theirs.size() == live_.size(), theirs.size(), live_.size());
  std::memcpy(sent_.data(), live_.data(), live_.size());
  kernel::moveHalfway(dtype_, live_, /*from=*/sent_, /*to=*/theirs);
  std::memcpy(theirs.data(), sent_.data(), sent_.size());
}

}  // namespace sluice::gossip
