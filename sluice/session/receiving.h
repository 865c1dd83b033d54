// Measures how fast payloads come in: their bytes, and the time in which any of them was coming. The
// quotient is the rate of the network as far as it was used, also if it was idle most of the time.
//
// Thread safety: begun() and ended() are for the loop; the totals may be read from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include <sluice/base/clock.h>

namespace sluice::session {

class Receiving final {
 public:
  // A payload begins to come; its first bytes are here.
  void begun(TimePoint now) {
    if (coming_++ == 0) since_ = now;
  }

  // It has come, or never will.
  void ended(uint64_t bytes, TimePoint now) {
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (--coming_ == 0) nanoseconds_.fetch_add((now - since_).count(), std::memory_order_relaxed);
  }

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  Duration time() const { return Duration(nanoseconds_.load(std::memory_order_relaxed)); }

 private:
  uint64_t coming_ = 0;
  TimePoint since_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace sluice::session
