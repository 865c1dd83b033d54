// From callbacks on the loop to a thread that waits.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>

#include <sluice/base/loop.h>
#include <sluice/base/status.h>

namespace sluice::session {

// For a wait whose end is somebody else's: training takes its time, a lost rank ends it by name.
inline constexpr auto kAsLongAsItTakes = std::chrono::hours(24 * 365);

// Asked now and then while a thread waits: an error ends the wait. Empty: never.
using Interruption = std::function<Status()>;

// True iff the loop destroys tasks instead of running them. Any thread but the loop's.
inline bool hasEnded(Loop& loop) {
  const auto ran = std::make_shared<std::atomic<bool>>(false);
  auto held = std::make_shared<bool>();
  const std::weak_ptr<bool> isHeld = held;
  loop.post([ran, held = std::move(held)] { *ran = true; });
  return isHeld.expired() && !*ran;
}

// Waits for what a completion on the loop will set. An interruption ends the wait only, and it can be waited
// for again.
inline Status awaitFuture(Loop& loop, const std::shared_future<Status>& result,
                          const Interruption& interruption = {}) {
  constexpr auto kPeriod = std::chrono::milliseconds(100);  // soon, for a person who waits
  constexpr int kRoundsBetweenLooks = 10;
  const Status ended(Code::kCancelled, "the loop of this process has ended");
  if (loop.inLoop())
    return {Code::kInvalidArgument, "a call from the loop's own thread would wait for itself"};
  if (loop.isInherited()) return base::forkedStatus();
  for (int round = 1; result.wait_for(kPeriod) == std::future_status::timeout; ++round) {
    if (round % kRoundsBetweenLooks == 0 && hasEnded(loop)) return ended;
    if (interruption) SLUICE_RETURN_IF_ERROR(interruption());
  }
  try {
    return result.get();
  } catch (const std::future_error&) {
    return ended;
  }
}

// Runs `start` on the loop with a completion, and waits until that has been called. The operation has an end
// of its own (a timeout, a lost peer); so has the wait. An interruption ends the wait only: what the
// operation holds must be its own. On the loop itself, where an observer of the user's runs, it is refused.
template <typename T, typename Start>
Result<T> await(Loop& loop, Start&& start, const Interruption& interruption = {}) {
  constexpr auto kInterruptionPeriod = std::chrono::milliseconds(100);  // soon, for a person who waits
  constexpr int kRoundsBetweenLooks = 10;
  const Status ended(Code::kCancelled, "the loop of this process has ended");
  if (loop.inLoop())
    return Status(Code::kInvalidArgument, "a call from the loop's own thread would wait for itself");
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
  for (int round = 1; result.wait_for(kInterruptionPeriod) == std::future_status::timeout; ++round) {
    if (round % kRoundsBetweenLooks == 0 && hasEnded(loop)) return ended;
    if (!interruption) continue;
    if (Status status = interruption(); !status.isOk()) {
      hasBegun.wait();  // `start` is the caller's
      return status;
    }
  }
  try {
    return result.get();
  } catch (const std::future_error&) {
    return ended;
  }
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
