// Arrows from rank to rank, for viewers of merged traces: a slice's gradient on its way to the
// server, and the result on its way back. A pure function.
#pragma once

#include <span>
#include <vector>

#include <sluice/observe/trace/journeys.h>
#include <sluice/observe/trace/rank_trace.h>

namespace sluice::trace {

struct ArrowEnd {
  Rank rank{};
  Rank peer{};  // the rank of the other end
  Stage stage{};
  TimePoint at{};
  Duration length{};  // how long the mark at this end is; marks of one track do not overlap
};

struct Arrow {
  TensorId tensor{};
  SliceId slice{};
  Step step{};
  ArrowEnd from, to;
};

// Returns an arrow for every push whose arrival at the server is known, and for every publication
// whose arrival at the worker is known, in the order of the traces. An arrow does not go back in
// time: if the two clocks disagree, its end is at its beginning. REQUIRES: the traces are those of
// `journeys`, on one clock.
std::vector<Arrow> arrowsBetween(std::span<const RankTrace> traces, const Journeys& journeys);

}  // namespace sluice::trace
