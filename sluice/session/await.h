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

// Refuses a wait for the loop from its own thread, where an observer of the user's runs, and from a
// forked child.
inline Status checkMayWait(const Loop& loop) {
  if (loop.inLoop())
    return {Code::kInvalidArgument, "a call from the loop's own thread would wait for itself"};
  return loop.isInherited() ? base::forkedStatus() : base::ok();
}

// Waits for the outcome (a Status or a Result) that a completion on the loop will set. An
// interruption ends the wait only, and the outcome can be waited for again.
template <typename Outcome, typename Future>
Outcome awaitOutcome(Loop& loop, Future& outcome, const Interruption& interruption) {
  constexpr auto kPeriod = std::chrono::milliseconds(100);  // soon, for a person who waits
  constexpr int kRoundsBetweenLooks = 10;
  const Status ended(Code::kCancelled, "the loop of this process has ended");
  for (int round = 1; outcome.wait_for(kPeriod) == std::future_status::timeout; ++round) {
    if (round % kRoundsBetweenLooks == 0 && hasEnded(loop)) return ended;
    if (interruption) SLUICE_RETURN_IF_ERROR(interruption());
  }
  try {
    return outcome.get();
  } catch (const std::future_error&) {
    return ended;
  }
}

// The same for an outcome that somebody else has set going.
inline Status awaitFuture(Loop& loop, const std::shared_future<Status>& outcome,
                          const Interruption& interruption = {}) {
  SLUICE_RETURN_IF_ERROR(checkMayWait(loop));
  return awaitOutcome<Status>(loop, outcome, interruption);
}

// Runs `start` on the loop with a completion, and waits until that has been called. The operation
// has an end of its own (a timeout, a lost peer); so has the wait. An interruption ends the wait
// only: what the operation holds must be its own.
template <typename T, typename Start>
Result<T> await(Loop& loop, Start&& start, const Interruption& interruption = {}) {
  SLUICE_RETURN_IF_ERROR(checkMayWait(loop));
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto outcome = promise->get_future();
  auto begun = std::make_shared<std::promise<void>>();
  const auto hasBegun = begun->get_future();
  loop.post([promise, begun, &start] {
    start([promise](Result<T> got) { promise->set_value(std::move(got)); });
    begun->set_value();
  });
  promise.reset();
  begun.reset();  // a loop that has ended destroys the task, and with it the promises
  auto got = awaitOutcome<Result<T>>(loop, outcome, interruption);
  hasBegun.wait();  // `start` is the caller's
  return got;
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
