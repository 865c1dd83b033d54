// What an iteration's length was made of: the chain of work and waiting, through all ranks, without
// any of whose parts the iteration would have been shorter. Pure functions.
//
// An iteration of a rank goes from the moment it hands over the last gradient of one step to the
// same moment of the next. The path is followed backwards from its end: while the rank was
// computing, so does the path; where it stood before a gate, the path goes on with the slice that
// opened it, back through its stages to the rank that pushed the last part of it, and there on with
// computing.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <sluice/trace/journeys.h>
#include <sluice/trace/rank_trace.h>

namespace sluice::trace {

enum class Activity : uint8_t {
  kCompute,  // the rank's own: forward or backward
  kStage,    // a slice was in a stage
  kGate,     // the gate was open, and the thread had not gone on yet
  kUnknown,  // no trace says
};

struct PathPart {
  Activity activity = Activity::kCompute;
  Rank rank{};    // where
  Stage stage{};  // the rest: of kStage, and (but for the stage) of kGate
  TensorId tensor{};
  SliceId slice{};
  Rank peer{};
  TimePoint from{};
  TimePoint to{};

  Duration length() const { return to - from; }
  std::string_view name() const;  // "compute", "gate", "unknown", or the stage's
};

struct Iteration {
  Step step{};  // whose gradients it makes
  Rank rank{};  // which ended it last of all ranks
  TimePoint begin{};
  TimePoint end{};
  std::vector<PathPart> parts{};  // from begin to end

  Duration length() const { return end - begin; }
  Duration explained() const;  // all parts but the unknown ones
};

// Every iteration that the traces have all of, by step. REQUIRES: they are on one clock.
std::vector<Iteration> criticalPaths(std::span<const RankTrace> traces);

}  // namespace sluice::trace
