// Measures how fast payloads come in: their bytes, and the time in which any of them was coming. The
// quotient is the rate of the network as far as it was used, also if it was idle most of the time.
//
// The beginning of a payload comes with its header, in one record of TLS, so that nobody sees how
// long it took. It does not count: kAtOnce bytes of each payload are left out.
//
// Thread safety: begun() and ended() are for the loop; the totals may be read from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include <sluice/base/clock.h>

namespace sluice::session {

class Receiving final {
 public:
  static constexpr uint64_t kAtOnce = uint64_t{16} << 10;

  // Notes that a payload begins to come; its first bytes are here.
  void begun(TimePoint now) {
    if (coming_++ == 0) since_ = now;
  }

  // Notes that a payload has come, or never will.
  void ended(uint64_t bytes, TimePoint now) {
    if (bytes > kAtOnce) bytes_.fetch_add(bytes - kAtOnce, std::memory_order_relaxed);
    if (--coming_ == 0) nanoseconds_.fetch_add((now - since_).count(), std::memory_order_relaxed);
  }

  uint64_t bytes() const {  // without the beginnings
    return bytes_.load(std::memory_order_relaxed);
  }
  Duration time() const { return Duration(nanoseconds_.load(std::memory_order_relaxed)); }

 private:
  uint64_t coming_ = 0;
  TimePoint since_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace sluice::session
