// The sender's own bits of the headers that strategies send about slices (wire/header.h), in one
// place: the slice protocol.
#pragma once

#include <cstdint>

#include <sluice/transport/wire/header.h>

namespace sluice::algorithms {

// Servers that collect all workers' parts (server/collecting.h).
namespace collecting {
// Flags of a kPublish message; without both it is the result itself.
inline constexpr auto kNotify =
    wire::Flags{0x0100};  // server to worker: the result is ready, ask for it
inline constexpr auto kPull = wire::Flags{0x0200};  // worker to server: send it
// In a kPush message: this worker has no gradient. In a result: no worker had a gradient. Such a
// message has no payload.
inline constexpr auto kNoGradient = wire::Flags{0x0400};
}  // namespace collecting

// Servers that answer each worker (server/answering.h).
namespace answering {
// Flags of a kPush message.
inline constexpr auto kAsks = wire::Flags{0x0100};     // the worker waits for an answer
inline constexpr auto kHasNone = wire::Flags{0x0200};  // the worker has nothing to say; no payload
// Messages for a checkpoint, outside any step: a worker asks what the server holds of a slice, and
// is told.
inline constexpr auto kAsksHeld = wire::Flags{0x0400};
inline constexpr auto kTellsHeld = wire::Flags{0x0800};
inline constexpr auto kWaitsForWord =
    wire::Flags{0x1000};  // the part waits at the server for the worker's word
// The worker's word on the parts of a step that wait, in a kUpdate message without a payload. A
// kUpdate message without both flags holds hyperparameters.
inline constexpr auto kUse = wire::Flags{0x0100};
inline constexpr auto kDrop = wire::Flags{0x0200};
// In a kPublish message: how many steps the copy in an answer lags behind its worker.
inline constexpr unsigned kLagShift = 8;
inline constexpr uint64_t kMostLag = 0xff;
}  // namespace answering

}  // namespace sluice::algorithms
