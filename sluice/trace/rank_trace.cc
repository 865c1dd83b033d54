#include <sluice/trace/rank_trace.h>

#include <algorithm>

namespace sluice::trace {

TimePoint RankTrace::begin() const {
  if (events.empty() && waits.empty()) return {};
  TimePoint first = TimePoint::max();
  for (const auto& event : events) first = std::min(first, event.at);
  for (const auto& wait : waits) first = std::min(first, wait.from);
  return first;
}

void shift(RankTrace& trace, Duration by) {
  for (auto& event : trace.events) event.at += by;
  for (auto& wait : trace.waits) {
    wait.from += by;
    wait.to += by;
  }
}

}  // namespace sluice::trace
