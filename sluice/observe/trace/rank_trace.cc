#include <sluice/observe/trace/rank_trace.h>

#include <algorithm>

namespace sluice::trace {

TimePoint RankTrace::begin() const {
  if (events.empty() && waits.empty()) return {};
  TimePoint first = TimePoint::max();
  for (const auto& event : events) first = std::min(first, event.at);
  for (const auto& wait : waits) first = std::min(first, wait.from);
  return first;
}

TimePoint RankTrace::end() const {
  if (events.empty() && waits.empty()) return {};
  TimePoint last = TimePoint::min();
  for (const auto& event : events) last = std::max(last, event.at);
  for (const auto& wait : waits) last = std::max(last, wait.to);
  return last;
}

void shift(RankTrace& trace, Duration by) {
  // `ahead` is wall time minus the trace's time, so it shrinks as the trace's times grow.
  if (trace.wall) trace.wall->ahead -= by;
  for (auto& event : trace.events) event.at += by;
  for (auto& wait : trace.waits) {
    wait.from += by;
    wait.to += by;
  }
}

}  // namespace sluice::trace
