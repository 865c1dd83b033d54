// The code that all engines share: the checks of a send, the header made from it, and the errors of
// the contract, so that they read the same whatever the engine. For fabric/ and its engines;
// closeAndWait() is for the owner of a fabric.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/wire/payload_check.h>

namespace sluice::fabric {

// Returns an error if `send(to, ...)` asks for something impossible.
Status checkSend(Rank to, size_t worldSize, const Message& message, const ConstBuffer& payload);

wire::Header makeHeader(const Message& message, Epoch epoch, Rank from, Rank to, Lane lane,
                        uint64_t sequence, uint64_t length);
wire::Header makeGoodbye(Epoch epoch, Rank from, Rank to, Lane lane, uint64_t sequence);

Status lostStatus(Rank peer,
                  const Status& why);  // kPeerLost: "rank 3 is lost: connection reset by peer"
Status leftStatus(Rank peer);          // kUnavailable
Status closedStatus();                 // kCancelled
// Returns kRefused, for a message that has no business here.
Status refusedStatus(const wire::Header& header, std::string_view why);

// Returns kRefused iff the landing has no room for the payload. The engine then counts
// Drop::kNoRoom, ends the landing with this status and reads past the payload.
Status checkLanding(const Landing& landing, const wire::Header& header);

// Returns kDataLoss: the payload of `header` does not match its checksum or tag.
Status badPayloadStatus(const wire::Header& header, wire::PayloadCheckKind kind);

// The time that runAndWait() gives a loop to come to the task. Time in which this process was
// stopped (SIGSTOP, a debugger, a paused machine) does not count.
inline constexpr Duration kLoopLimit = std::chrono::minutes(5);

// Runs `task` on the loop and returns ok when it has run. Otherwise the task never runs: the loop
// has ended (kCancelled), or was busy with something else for `atMost` (kTimeout). A task that has
// begun is waited for. So `task` may refer to the caller's locals. Any thread; on the loop's own
// thread the task runs at once.
[[nodiscard]] Status runAndWait(Loop& loop, Task task, Duration atMost = kLoopLimit);

// Does the same for a destructor: an object that the loop may still touch cannot be freed, so this
// waits, and logs why, until the task has run or the loop has ended.
void runBeforeFreeing(Loop& loop, Task task);

// Closes in good order, and waits for it: close() has a deadline of its own. REQUIRES: not on the
// loop.
Status closeAndWait(Fabric& fabric);

}  // namespace sluice::fabric
