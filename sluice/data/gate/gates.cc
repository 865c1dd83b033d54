#include <sluice/data/gate/gates.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/units.h>

namespace sluice::gate {

using base::Lock;

namespace {
constexpr auto kInterruptionPeriod =
    std::chrono::milliseconds(100);  // soon, for a person who waits
}

Gates::Gates(std::vector<std::string> tensorNames, WaitOptions options, OnStall onStall,
             StageObserver* observer)
    : names_(std::move(tensorNames)),
      options_(std::move(options)),
      onStall_(std::move(onStall)),
      observer_(observer),
      gates_(names_.size()) {}

sluice::Result<Step> Gates::close(TensorId tensor) {
  Lock lock(mutex_);
  Gate& gate = gates_.at(index(tensor));
  // A second gradient before the first one's result would reuse a buffer that is still on its way.
  if (gate.opened != gate.closedFor && error_.isOk()) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("'{}' is handed over a second time while step {} of it is under way: wait for "
                    "its result first",
                    names_[index(tensor)], gate.opened));
  }
  return Step{gate.closedFor++};
}

void Gates::startAt(TensorId tensor, Step step) {
  Lock lock(mutex_);
  Gate& gate = gates_.at(index(tensor));
  gate.closedFor = gate.opened = index(step);
}

void Gates::open(TensorId tensor, Step step, Result result) {
  {
    Lock lock(mutex_);
    Gate& gate = gates_.at(index(tensor));
    SLUICE_CHECK(gate.opened == index(step) && gate.opened < gate.closedFor, names_[index(tensor)],
                 index(step));
    ++gate.opened;
    gate.last = result;
  }
  // Waiting threads and callbacks are told outside the lock: a callback may close the gate
  // again, or wait for another one.
  changed_.notifyAll();
  callBack();
}

void Gates::fail(const Status& why) {
  SLUICE_CHECK(!why.isOk());
  {
    Lock lock(mutex_);
    if (!error_.isOk()) return;
    error_ = why;
  }
  changed_.notifyAll();
  callBack();
}

void Gates::endAfter(uint64_t steps, const Status& why) {
  SLUICE_CHECK(!why.isOk());
  {
    Lock lock(mutex_);
    if (!end_.isOk()) return;
    // Unlike fail(), this lets gates open in the steps that still have results. Only waits for
    // later steps end with `why`.
    stepsToCome_ = steps;
    end_ = why;
  }
  changed_.notifyAll();
  callBack();
}

Status Gates::error() const {
  Lock lock(mutex_);
  return error_;
}

uint64_t Gates::stepsBegun() const {
  Lock lock(mutex_);
  uint64_t most = 0;
  for (const Gate& gate : gates_) most = std::max(most, gate.closedFor);
  return most;
}

const Status& Gates::errorLocked(TensorId tensor) const {
  return error_.isOk() && gates_.at(index(tensor)).opened >= stepsToCome_ ? end_ : error_;
}

Status Gates::wait(TensorId tensor) {
  Step step{};
  {
    Lock lock(mutex_);
    if (isOpenLocked(tensor)) return base::ok();
    step = Step{gates_.at(index(tensor)).opened};
  }
  const base::TrainingThread::Call call(options_.thread, base::Doing::kGate, index(step));
  const TimePoint start = clock_.now();
  if (observer_ != nullptr) observer_->onWaitBegins({tensor, step, start, start});
  Status ended = waitFrom(start, tensor);
  if (observer_ == nullptr) return ended;
  const WaitEvent waited{tensor, step, start, clock_.now()};
  if (ended.isOk()) {
    observer_->onWait(waited);
  } else {
    observer_->onWaitFails(waited, ended);
  }
  return ended;
}

Status Gates::waitFrom(TimePoint start, TensorId tensor) {
  const TimePoint end = start + options_.atMost;
  TimePoint nextStall = start + options_.stallAfter;
  Step step{};
  while (true) {
    {
      Lock lock(mutex_);
      const auto ready = [&]() SLUICE_REQUIRES(mutex_) {
        return isOpenLocked(tensor) || !errorLocked(tensor).isOk();
      };
      step = Step{gates_.at(index(tensor)).opened};
      if (!ready()) {
        // The thread wakes up for four reasons: the gate opens, an error comes, a stall has to
        // be reported, or the interruption wants to be asked. All are looked at again after
        // each wake-up, in the order in which they matter to the caller.
        TimePoint until = std::min(nextStall, end);
        if (options_.interruption) until = std::min(until, clock_.now() + kInterruptionPeriod);
        changed_.waitUntil(mutex_, until, ready);
      }
      // An open gate is good even if an error has come meanwhile: the result is here, and the
      // error is found by the next wait.
      if (isOpenLocked(tensor)) return base::ok();
      if (const Status& why = errorLocked(tensor); !why.isOk()) {
        return why.withContext(
            fmt::format("waiting for '{}' of step {}", names_.at(index(tensor)), index(step)));
      }
    }
    if (options_.interruption) SLUICE_RETURN_IF_ERROR(options_.interruption());
    const TimePoint now = clock_.now();
    if (now < std::min(nextStall, end)) continue;
    onStall_(tensor, step, now - start);
    nextStall = now + options_.stallAfter;
    if (now >= end) {
      const std::string others = options_.otherRanks ? options_.otherRanks() : "";
      return {
          Code::kTimeout,
          fmt::format("'{}' of step {} did not come within {} (wait-timeout){}{}",
                      names_.at(index(tensor)), index(step), base::formatDuration(options_.atMost),
                      others.empty() ? "" : ": ", others)};
    }
  }
}

void Gates::whenOpen(TensorId tensor, std::function<void(const Status&)> then) {
  {
    Lock lock(mutex_);
    callbacks_.emplace(tensor, std::move(then));
  }
  callBack();
}

void Gates::callBack() {
  std::vector<std::pair<std::function<void(const Status&)>, Status>> ready;
  {
    // A callback leaves the map before it runs. So it runs once, although several threads may
    // be here, and it may add others.
    Lock lock(mutex_);
    for (auto it = callbacks_.begin(); it != callbacks_.end();) {
      const Status& why = errorLocked(it->first);
      const bool isReady = isOpenLocked(it->first) || !why.isOk();
      if (isReady)
        ready.emplace_back(std::move(it->second), isOpenLocked(it->first) ? base::ok() : why);
      it = isReady ? callbacks_.erase(it) : std::next(it);
    }
  }
  for (const auto& [then, status] : ready) then(status);
}

Status Gates::waitAll() {
  for (uint32_t tensor = 0; tensor < names_.size(); ++tensor)
    SLUICE_RETURN_IF_ERROR(wait(TensorId{tensor}));
  return base::ok();
}

bool Gates::isOpen(TensorId tensor) const {
  Lock lock(mutex_);
  return error_.isOk() && isOpenLocked(tensor);
}

bool Gates::isEmpty(TensorId tensor) const {
  Lock lock(mutex_);
  return gates_.at(index(tensor)).last == Result::kNone;
}

bool Gates::isOpenLocked(TensorId tensor) const {
  const Gate& gate = gates_.at(index(tensor));
  return gate.opened == gate.closedFor;
}

std::string Gates::describeClosed() const {
  constexpr size_t kShown = 3;  // a line people read, not a dump
  Lock lock(mutex_);
  std::string text;
  size_t closed = 0;
  for (size_t t = 0; t < gates_.size(); ++t) {
    if (gates_[t].opened == gates_[t].closedFor) continue;
    if (++closed <= kShown)
      text +=
          fmt::format("{}'{}' of step {}", closed == 1 ? "" : ", ", names_[t], gates_[t].opened);
  }
  if (closed == 0) return "nothing";
  if (closed > kShown) text += fmt::format(" and {} more", closed - kShown);
  return text;
}

}  // namespace sluice::gate
