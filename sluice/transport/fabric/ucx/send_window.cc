#include <sluice/transport/fabric/ucx/send_window.h>

#include <sluice/base/check.h>

namespace sluice::fabric::ucx {

void SendWindow::sent(size_t payloadBytes) {
  SLUICE_DCHECK(admits(payloadBytes), payloadBytes, bytes_);
  underWay_.push_back(costOf(payloadBytes));
  bytes_ += underWay_.back();
}

bool SendWindow::taken(uint64_t upTo) {
  // A number beyond what was sent, or one that goes back, is old or wrong. The window changes
  // with neither: it must never be opened by a message that cannot be true.
  if (upTo < firstUnderWay_ || upTo - firstUnderWay_ > underWay_.size()) return false;
  for (; firstUnderWay_ < upTo; ++firstUnderWay_) {
    bytes_ -= underWay_.front();
    underWay_.pop_front();
  }
  return true;
}

}  // namespace sluice::fabric::ucx
