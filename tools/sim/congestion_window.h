// The bytes that a stream may have on their way, as TCP's Reno has it: twice as much after every
// round trip at the beginning, one segment more later, and half after a loss. A value of its
// stream.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice::sim {

inline constexpr uint64_t kMss = 1448;  // payload of an Ethernet frame with TCP's timestamps

class CongestionWindow final {
 public:
  explicit CongestionWindow(uint64_t most) : most_(most), threshold_(most) {}

  uint64_t bytes() const { return bytes_; }

  void acknowledged(uint64_t bytes) {
    bytes_ += bytes_ < threshold_ ? bytes : std::max<uint64_t>(kMss * bytes / bytes_, 1);
    bytes_ = std::min(bytes_, most_);
  }
  void lost() {
    threshold_ = std::max(bytes_ / 2, 2 * kMss);
    bytes_ = threshold_;
  }

 private:
  uint64_t most_;
  uint64_t threshold_;
  uint64_t bytes_ = 10 * kMss;  // RFC 6928
};

}  // namespace sluice::sim
