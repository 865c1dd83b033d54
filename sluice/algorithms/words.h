// The sender's own bits of the headers that strategies send about slices (wire/header.h), in one
// place: the slice protocol.
#pragma once

#include <cstdint>

#include <sluice/transport/wire/header.h>

namespace sluice::algorithms {

// Servers that collect all workers' parts (server/collecting.h).
namespace collecting {
// Of a kPublish message; with neither, it is the result itself.
inline constexpr auto kNotify =
    wire::Flags{0x0100};  // server to worker: the result is ready, ask for it
inline constexpr auto kPull = wire::Flags{0x0200};  // worker to server: send it
// Of a kPush message: this worker has no gradient. Of a result: no worker had one. Neither has a
// payload.
inline constexpr auto kNoGradient = wire::Flags{0x0400};
}  // namespace collecting

// Servers that answer each worker (server/answering.h).
namespace answering {
// Of a kPush message.
inline constexpr auto kAsks = wire::Flags{0x0100};     // the worker waits for an answer
inline constexpr auto kHasNone = wire::Flags{0x0200};  // the worker has nothing to say; no payload
// For a checkpoint, in no step: a worker asks what the server holds of a slice, and is told.
inline constexpr auto kAsksHeld = wire::Flags{0x0400};
inline constexpr auto kTellsHeld = wire::Flags{0x0800};
inline constexpr auto kWaitsForWord =
    wire::Flags{0x1000};  // the part waits at the server for the worker's word
// Of a kUpdate message without a payload: the worker's word on the parts of a step that wait. With
// neither, the message holds hyperparameters.
inline constexpr auto kUse = wire::Flags{0x0100};
inline constexpr auto kDrop = wire::Flags{0x0200};
// Of a kPublish message: how many steps the copy in an answer lags behind its worker.
inline constexpr unsigned kLagShift = 8;
inline constexpr uint64_t kMostLag = 0xff;
}  // namespace answering

}  // namespace sluice::algorithms
