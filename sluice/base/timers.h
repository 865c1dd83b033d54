// The timers of a loop, in order of time, first-in first-out at equal times. Belongs to its loop.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include <sluice/base/loop.h>

namespace sluice::base {

class Timers final {
 public:
  TimerId add(TimePoint due, Task task) {
    const TimerId id{next_++};
    byDue_.emplace(std::pair(due, id), std::move(task));
    dueOf_.emplace(id, due);
    return id;
  }

  void cancel(TimerId id) {
    const auto found = dueOf_.find(id);
    if (found == dueOf_.end()) return;
    byDue_.erase({found->second, id});
    dueOf_.erase(found);
  }

  std::optional<TimePoint> nextDue() const {
    if (byDue_.empty()) return std::nullopt;
    return byDue_.begin()->first.first;
  }

  // Takes the next timer that is due at `now`, so that it may cancel or add others while it runs.
  std::optional<Task> takeDue(TimePoint now) {
    if (byDue_.empty() || byDue_.begin()->first.first > now) return std::nullopt;
    auto node = byDue_.extract(byDue_.begin());
    dueOf_.erase(node.key().second);
    return std::move(node.mapped());
  }

 private:
  std::map<std::pair<TimePoint, TimerId>, Task> byDue_;
  std::unordered_map<TimerId, TimePoint> dueOf_;
  uint64_t next_ = 1;
};

}  // namespace sluice::base
