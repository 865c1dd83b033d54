// Lets a thread wait for callbacks on the loop.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>

#include <sluice/base/loop.h>
#include <sluice/base/status.h>

namespace sluice::base {

// The limit of a wait that others end: training takes its time, and a lost rank ends the wait with
// an error that names it.
inline constexpr auto kAsLongAsItTakes = std::chrono::hours(24 * 365);

// A function that is called now and then while a thread waits: its error ends the wait. May be
// empty.
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
    return {Code::kInvalidArgument,
            "a call from the loop's own thread would wait for itself; make it from another thread"};
  return loop.isInherited() ? forkedStatus() : base::ok();
}

// Waits for the outcome (a Status or a Result) that a completion on the loop will set. An
// interruption ends the wait only, and the outcome can be waited for again.
template <typename Outcome, typename Future>
Outcome awaitOutcome(Loop& loop, Future& outcome, const Interruption& interruption) {
  constexpr auto kPeriod = std::chrono::milliseconds(100);  // short for a person who waits
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

// Waits in the same way for an outcome whose operation is already under way.
inline Status awaitFuture(Loop& loop, const std::shared_future<Status>& outcome,
                          const Interruption& interruption = {}) {
  SLUICE_RETURN_IF_ERROR(checkMayWait(loop));
  return awaitOutcome<Status>(loop, outcome, interruption);
}

// Runs `start` on the loop with a completion, and waits until that has been called. The operation
// always ends (by a timeout, by a lost peer), and so does the wait. An interruption ends only the
// wait, so the operation must own all that it uses.
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
  hasBegun.wait();  // `start` lives on the caller's stack, so the task must have run or gone
  return got;
}

// Does the same for an operation that gives only a Status.
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

}  // namespace sluice::base
