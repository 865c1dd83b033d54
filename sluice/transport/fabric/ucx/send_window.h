// Limits the bytes of one lane that are under way to one rank: sent, and not yet taken by its
// receiver. UCX calls a message complete when it lies in some buffer on the way, which may be
// megabytes before the wire; this counts the messages that the receiver says it took, so that the
// bytes beyond recall are bounded whatever lies between. Pure bookkeeping: no UCX, no clock. One
// owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace sluice::fabric::ucx {

class SendWindow final {
 public:
  explicit SendWindow(size_t limitBytes) : limitBytes_(limitBytes) {}

  // A message larger than the whole window goes alone.
  bool admits(size_t payloadBytes) const {
    return underWay_.empty() || bytes_ + costOf(payloadBytes) <= limitBytes_;
  }
  // Notes that the next message of the lane is sent. REQUIRES: admits(payloadBytes)
  void sent(size_t payloadBytes);

  // Notes that the receiver has taken all messages of the lane before number `upTo`. Returns false
  // if that cannot be: then nothing changes.
  bool taken(uint64_t upTo);

  bool isEmpty() const { return underWay_.empty(); }
  size_t bytes() const { return bytes_; }

 private:
  // Small messages cost memory at the receiver beyond their payload; without this overhead their
  // number would have no bound.
  static constexpr size_t kMessageOverhead = 256;
  static size_t costOf(size_t payloadBytes) { return payloadBytes + kMessageOverhead; }

  size_t limitBytes_;
  size_t bytes_ = 0;
  uint64_t firstUnderWay_ = 0;   // its number in the lane
  std::deque<size_t> underWay_;  // the cost of each
};

}  // namespace sluice::fabric::ucx
