/// @file
/// Shows the path of every slice to tools that trace or count. Training does not need it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

#include <sluice/model.h>
#include <sluice/status.h>

namespace sluice {

/// The stages on the path of one slice. A number keeps its meaning; kPath has the order.
enum class Stage : uint8_t {
  kReady,         ///< Backward has made the gradient.
  kQueued,        ///< The slice waits for its turn and for credit.
  kPush,          ///< The slice is on its way to its server.
  kCollect,       ///< The slice is at the server and waits for the other ranks' parts.
  kReduce,        ///< The parts are being summed.
  kUpdate,        ///< The optimizer makes its step.
  kPublish,       ///< The result is on its way back to the workers.
  kApplied,       ///< The result is here and the gate may open.
  kStageOut = 8,  ///< The gradient is on its way from a device to host memory.
  kStageIn = 9,   ///< The result is on its way from host memory to a device.
};

/// Holds all stages in the order in which they are walked. Gradients in host memory skip kStageOut
/// and kStageIn.
inline constexpr std::array kPath{
    Stage::kReady,  Stage::kStageOut, Stage::kQueued,  Stage::kPush,    Stage::kCollect,
    Stage::kReduce, Stage::kUpdate,   Stage::kPublish, Stage::kStageIn, Stage::kApplied};

/// Returns the name of a stage as traces and metrics write it: "publish".
constexpr std::string_view name(Stage stage) {
  switch (stage) {
    case Stage::kReady: return "ready";
    case Stage::kQueued: return "queued";
    case Stage::kPush: return "push";
    case Stage::kCollect: return "collect";
    case Stage::kReduce: return "reduce";
    case Stage::kUpdate: return "update";
    case Stage::kPublish: return "publish";
    case Stage::kApplied: return "applied";
    case Stage::kStageOut: return "stage-out";
    case Stage::kStageIn: return "stage-in";
  }
  return "?";
}

/// A moment, by the machine's steady clock.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;

/// One slice entered a stage. The stage before it, of the same slice, step and peer, ended at that
/// moment.
struct StageEvent {
  Stage stage;      ///< Says which stage begins.
  Step step;        ///< Names the step of training.
  TensorId tensor;  ///< Names the tensor that the slice is a part of.
  SliceId slice;    ///< Names the slice.
  /// Names the other end (queued, push, publish), the worker (collect), the rank that the result
  /// came from (stage-in, applied), or this rank.
  Rank peer;
  TimePoint at;  ///< Says when the stage begins.
};

/// The forward pass waited at a closed gate.
struct WaitEvent {
  TensorId tensor;  ///< Names the tensor that was waited for.
  Step step;        ///< Says which step's result was waited for.
  TimePoint from;   ///< Says when the wait began.
  TimePoint to;     ///< Says when it ended.
};

/// The interface of a tool that traces or counts. Implementations are thread-safe and quick: they
/// run in the middle of the path.
class SLUICE_API StageObserver {
 public:
  virtual ~StageObserver() = default;
  /// Is called when a slice enters a stage: on the loop's thread, or on that of a copy to a device.
  virtual void onStage(const StageEvent& event) = 0;
  /// Is called on the thread that waited, after its wait.
  virtual void onWait(const WaitEvent& event) = 0;
  /// Is called on the thread that is about to wait; `event.to` has no meaning yet.
  virtual void onWaitBegins(const WaitEvent& /*event*/) {}
  /// Is called on the thread that waited, if its wait ended with an error instead of a result.
  virtual void onWaitFails(const WaitEvent& /*event*/, const Status& /*why*/) {}
};

}  // namespace sluice
