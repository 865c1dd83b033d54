#include <sluice/gate/gates.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/units.h>

namespace sluice::gate {

using base::Lock;

Gates::Gates(std::vector<std::string> tensorNames, WaitOptions options, OnStall onStall,
             plan::StageObserver* observer)
    : names_(std::move(tensorNames)),
      options_(options),
      onStall_(std::move(onStall)),
      observer_(observer),
      gates_(names_.size()) {}

Step Gates::close(TensorId tensor) {
  Lock lock(mutex_);
  Gate& gate = gates_.at(index(tensor));
  // A second gradient before the first one's result would reuse a buffer that is still on its way.
  SLUICE_CHECK(gate.opened == gate.closedFor || !error_.isOk(), names_[index(tensor)], gate.closedFor);
  return Step{gate.closedFor++};
}

void Gates::open(TensorId tensor, Step step) {
  {
    Lock lock(mutex_);
    Gate& gate = gates_.at(index(tensor));
    SLUICE_CHECK(gate.opened == index(step) && gate.opened < gate.closedFor, names_[index(tensor)],
                 index(step));
    ++gate.opened;
  }
  changed_.notifyAll();
}

void Gates::fail(const Status& why) {
  SLUICE_CHECK(!why.isOk());
  {
    Lock lock(mutex_);
    if (!error_.isOk()) return;
    error_ = why;
  }
  changed_.notifyAll();
}

Status Gates::wait(TensorId tensor) {
  const TimePoint start = clock_.now();
  const TimePoint end = start + options_.atMost;
  Step step{};
  bool waited = false;
  while (true) {
    {
      Lock lock(mutex_);
      const auto ready = [&]() SLUICE_REQUIRES(mutex_) { return isOpenLocked(tensor) || !error_.isOk(); };
      if (!ready()) {
        waited = true;
        step = Step{gates_.at(index(tensor)).opened};
        changed_.waitUntil(mutex_, std::min(clock_.now() + options_.stallAfter, end), ready);
      }
      if (isOpenLocked(tensor)) break;
      if (!error_.isOk()) {
        return error_.withContext(
            fmt::format("waiting for '{}' of step {}", names_.at(index(tensor)), index(step)));
      }
    }
    const TimePoint now = clock_.now();
    onStall_(tensor, step, now - start);
    if (now >= end) {
      return {Code::kTimeout, fmt::format("'{}' of step {} did not come within {}", names_.at(index(tensor)),
                                          index(step), base::formatDuration(options_.atMost))};
    }
  }
  if (waited && observer_ != nullptr) observer_->onWait({tensor, step, start, clock_.now()});
  return base::ok();
}

Status Gates::waitAll() {
  for (uint32_t tensor = 0; tensor < names_.size(); ++tensor) SLUICE_RETURN_IF_ERROR(wait(TensorId{tensor}));
  return base::ok();
}

bool Gates::isOpen(TensorId tensor) const {
  Lock lock(mutex_);
  return error_.isOk() && isOpenLocked(tensor);
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
      text += fmt::format("{}'{}' of step {}", closed == 1 ? "" : ", ", names_[t], gates_[t].opened);
  }
  if (closed == 0) return "nothing";
  if (closed > kShown) text += fmt::format(" and {} more", closed - kShown);
  return text;
}

}  // namespace sluice::gate
