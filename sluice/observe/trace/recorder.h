// Remembers the latest events of slices, in bounded memory. A session makes one when a trace is
// wanted; others may pass it as an observer of their own. Any thread.
#pragma once

#include <cstddef>
#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/observe/trace/rank_trace.h>
#include <sluice/observer.h>

namespace sluice::trace {

class Recorder final : public StageObserver {
 public:
  // Keeps the latest `capacity` events, and as many waits. REQUIRES: capacity > 0.
  explicit Recorder(size_t capacity);

  void onStage(const StageEvent& event) override;
  void onWait(const WaitEvent& event) override;

  // Adds what is kept to a trace, the oldest first.
  void addTo(RankTrace& trace) const;

 private:
  template <typename T>
  struct Ring {
    std::vector<T> items;
    size_t next = 0;  // index of the oldest item, once it is full
    uint64_t lost = 0;

    void add(const T& item, size_t capacity);
    void addTo(std::vector<T>& list) const;
  };
  struct Kept {
    Ring<StageEvent> events;
    Ring<WaitEvent> waits;
  };

  const size_t capacity_;
  base::Guarded<Kept> kept_;
};

}  // namespace sluice::trace
