#include <sluice/observe/trace/recorder.h>

#include <sluice/base/check.h>

namespace sluice::trace {

template <typename T>
void Recorder::Ring<T>::add(const T& item, size_t capacity) {
  if (items.size() < capacity) {
    items.push_back(item);
    return;
  }
  // The oldest entry goes: somebody who looks into a trace wants to see how it ended.
  items[next] = item;
  next = (next + 1) % capacity;
  ++lost;
}

template <typename T>
void Recorder::Ring<T>::addTo(std::vector<T>& list) const {
  list.reserve(list.size() + items.size());
  const auto oldest = items.begin() + static_cast<std::ptrdiff_t>(next);
  list.insert(list.end(), oldest, items.end());
  list.insert(list.end(), items.begin(), oldest);
}

Recorder::Recorder(size_t capacity) : capacity_(capacity) {
  SLUICE_CHECK(capacity > 0);
  // Memory that is not written to costs nothing; growing in the middle of the path would.
  kept_.with([&](Kept& kept) { kept.events.items.reserve(capacity); });
}

void Recorder::onStage(const StageEvent& event) {
  kept_.with([&](Kept& kept) { kept.events.add(event, capacity_); });
}

void Recorder::onWait(const WaitEvent& event) {
  kept_.with([&](Kept& kept) { kept.waits.add(event, capacity_); });
}

void Recorder::addTo(RankTrace& trace) const {
  kept_.with([&](const Kept& kept) {
    kept.events.addTo(trace.events);
    kept.waits.addTo(trace.waits);
    trace.lost += kept.events.lost + kept.waits.lost;
  });
}

}  // namespace sluice::trace
