// From callbacks on the loop to a thread that waits.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>

#include <sluice/base/check.h>
#include <sluice/base/loop.h>
#include <sluice/base/status.h>

namespace sluice::session {

// For a wait whose end is somebody else's: training takes its time, a lost rank ends it by name.
inline constexpr auto kAsLongAsItTakes = std::chrono::hours(24 * 365);

// Asked now and then while a thread waits: an error ends the wait. Empty: never.
using Interruption = std::function<Status()>;

// Runs `start` on the loop with a completion, and waits until that has been called. The operation has an end
// of its own (a timeout, a lost peer); so has the wait. An interruption ends the wait only: what the
// operation holds must be its own. REQUIRES: not on the loop.
template <typename T, typename Start>
Result<T> await(Loop& loop, Start&& start, const Interruption& interruption = {}) {
  constexpr auto kInterruptionPeriod = std::chrono::milliseconds(100);  // soon, for a person who waits
  SLUICE_CHECK(!loop.inLoop());
  if (loop.isInherited()) return base::forkedStatus();
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto result = promise->get_future();
  auto begun = std::make_shared<std::promise<void>>();
  const auto hasBegun = begun->get_future();
  loop.post([promise, begun, &start] {
    start([promise](Result<T> got) { promise->set_value(std::move(got)); });
    begun->set_value();
  });
  promise.reset();
  while (interruption && result.wait_for(kInterruptionPeriod) == std::future_status::timeout) {
    if (Status status = interruption(); !status.isOk()) {
      hasBegun.wait();  // `start` is the caller's
      return status;
    }
  }
  return result.get();
}

// The same for an operation that gives nothing but a Status.
template <typename Start>
Status awaitStatus(Loop& loop, Start&& start, const Interruption& interruption = {}) {
  return await<bool>(
             loop,
             [&](auto got) {
               start([got = std::move(got)](const Status& status) {
                 got(status.isOk() ? Result<bool>(true) : Result<bool>(status));
               });
             },
             interruption)
      .status();
}

}  // namespace sluice::session
