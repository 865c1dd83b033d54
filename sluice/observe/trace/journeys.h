// The events of several ranks, put together by slice and step: where each slice was when, and what
// came next. The traces are on one clock (one_clock.h), or there is only one. A value; belongs to
// its owner.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include <sluice/observe/trace/rank_trace.h>

namespace sluice::trace {

class Journeys final {
 public:
  // REQUIRES: the traces outlive this.
  explicit Journeys(std::span<const RankTrace> traces);

  // Returns when the slice entered the stage at `rank`, with `peer` at the other end.
  std::optional<TimePoint> at(SliceId slice, Step step, Rank rank, Stage stage, Rank peer) const;

  // The moment at which a slice entered a stage, and the rank at the other end. Where several ranks
  // are at the other end, first() gives the earliest of their moments and last() the latest.
  struct Moment {
    Rank peer{};
    TimePoint at{};
  };
  std::optional<Moment> first(SliceId slice, Step step, Rank rank, Stage stage) const;
  std::optional<Moment> last(SliceId slice, Step step, Rank rank, Stage stage) const;

  // Returns when the stage that this event began has ended, here or at another rank; empty if no
  // trace knows, and for kApplied, which is the end.
  std::optional<TimePoint> endOf(Rank rank, const StageEvent& event) const;

 private:
  struct Entry {
    Rank rank;
    const StageEvent* event;
  };
  std::span<const Entry> of(SliceId slice, Step step) const;

  std::unordered_map<uint64_t, std::vector<Entry>> entries_;  // by slice and step
};

}  // namespace sluice::trace
