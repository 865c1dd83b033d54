// The path of one slice, in the order it is walked. Traces, metrics and message headers use these names;
// docs/glossary.md says which folder each is at home in.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sluice::plan {

enum class Stage : uint8_t {
  kReady,    // gate/: backward has made the gradient
  kQueued,   // queue/: waits for its turn and for credit
  kPush,     // fabric/: on its way to the server
  kCollect,  // shard/: at the server, waits for the other ranks' parts
  kReduce,   // shard/: being summed
  kUpdate,   // shard/: the optimizer's step
  kPublish,  // fabric/: on its way back to the workers
  kApplied,  // gate/: the parameter is here, the gate may open
};

inline constexpr std::array kPath{Stage::kReady,  Stage::kQueued, Stage::kPush,    Stage::kCollect,
                                  Stage::kReduce, Stage::kUpdate, Stage::kPublish, Stage::kApplied};

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
  }
  return "?";  // no default above: a new stage without a name is a compiler warning
}

}  // namespace sluice::plan
