// Explains the length of an iteration by its critical path: the chain of work and waiting, through
// all ranks, in which every part made the iteration longer. Pure functions.
//
// An iteration of a rank goes from the moment it hands over the last gradient of one step to the
// same moment of the next. The path is followed backwards from the end of the iteration. While the
// rank was computing, the path stays with it. From a gate before which the rank waited, the path
// goes on with the slice that opened the gate, back through its stages to the rank that pushed the
// last part of it, and there on with computing.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include <sluice/observe/trace/journeys.h>
#include <sluice/observe/trace/rank_trace.h>

namespace sluice::trace {

enum class Activity : uint8_t {
  kCompute,  // the rank's own: forward or backward
  kStage,    // a slice was in a stage
  kGate,     // the gate was open, and the thread had not gone on yet
  kUnknown,  // no trace says
};

struct PathPart {
  Activity activity = Activity::kCompute;
  Rank rank{};    // the rank at which the part happened
  Stage stage{};  // this and the rest: for kStage, and (but for the stage) for kGate
  TensorId tensor{};
  SliceId slice{};
  Rank peer{};
  TimePoint from{};
  TimePoint to{};

  Duration length() const { return to - from; }
  std::string_view name() const;  // "compute", "gate", "unknown", or the stage's
};

struct Iteration {
  Step step{};  // the step whose gradients it makes
  Rank rank{};  // the rank that ended it last of all
  TimePoint begin{};
  TimePoint end{};
  std::vector<PathPart> parts{};  // from begin to end

  Duration length() const { return end - begin; }
  Duration explained() const;  // all parts but the unknown ones
};

// Returns every iteration that the traces hold in full, by step. REQUIRES: the traces are on one
// clock.
std::vector<Iteration> criticalPaths(std::span<const RankTrace> traces);

}  // namespace sluice::trace
