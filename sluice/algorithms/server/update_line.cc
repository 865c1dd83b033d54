#include <sluice/algorithms/server/update_line.h>

#include <algorithm>
#include <utility>

#include <sluice/base/check.h>

namespace sluice::algorithms {

UpdateLine::UpdateLine(base::Loop& loop, base::Rate rate, queue::SendOrder order)
    : loop_(loop), rate_(rate), order_(order) {}

void UpdateLine::add(const plan::Slice& slice, Step step, uint64_t bytes,
                     std::function<void()> done) {
  SLUICE_DCHECK(loop_.inLoop());
  // Without a rate the line does not exist: the answer goes out inside the call, as it would
  // from a real server that is fast enough. With one, only the answer is late; the sum has been
  // made already.
  if (rate_.bitsPerSecond == 0) return done();
  const queue::Waiting place{.send = {.step = step, .priority = slice.priority},
                             .arrival = arrivals_++};
  waiting_.emplace(queue::keyOf(order_, place), Update{bytes, std::move(done)});
  if (!std::exchange(isBusy_, true)) begin(loop_.now());
}

void UpdateLine::begin(TimePoint start) {
  auto next = waiting_.extract(waiting_.begin());
  const double seconds =
      static_cast<double>(next.mapped().bytes) * 8 / static_cast<double>(rate_.bitsPerSecond);
  const TimePoint end = start + base::fromSeconds(seconds);
  loop_.after(std::max(Duration{}, end - loop_.now()),
              [this, end, done = std::move(next.mapped().done), alive = std::weak_ptr(alive_)] {
                if (!alive.expired()) this->end(done, end);
              });
}

// The next update begins when this one should have ended, however late the timer is.
void UpdateLine::end(const std::function<void()>& done, TimePoint end) {
  isBusy_ = !waiting_.empty();
  if (isBusy_) begin(end);
  done();
}

}  // namespace sluice::algorithms
