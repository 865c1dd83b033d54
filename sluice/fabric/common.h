// What all engines share: the checks of a send, the header made from it, and the errors of the contract, so
// that they read the same whatever the engine. For fabric/ and its engines; closing in good order is for
// whoever owns one.
#pragma once

#include <cstdint>
#include <string_view>

#include <sluice/fabric/fabric.h>

namespace sluice::fabric {

// Whether `send(to, ...)` asks for something that can be.
Status checkSend(Rank to, size_t worldSize, const Message& message, const ConstBuffer& payload);

wire::Header makeHeader(const Message& message, Epoch epoch, Rank from, Rank to, Lane lane, uint64_t sequence,
                        uint64_t length);
wire::Header makeGoodbye(Epoch epoch, Rank from, Rank to, Lane lane, uint64_t sequence);

Status lostStatus(Rank peer, const Status& why);  // kPeerLost: "rank 3 is lost: connection reset by peer"
Status leftStatus(Rank peer);                     // kUnavailable
Status closedStatus();                            // kCancelled
// Of a message that has no business here.
Status refusedStatus(const wire::Header& header, std::string_view why);

// kRefused iff the landing has no room for the payload. The engine then counts Drop::kNoRoom, ends the
// landing with this status and reads past the payload.
Status checkLanding(const Landing& landing, const wire::Header& header);

// Runs `task` on the loop and returns when it has run, or when the loop has ended without running it.
void runAndWait(Loop& loop, Task task);

// Closes in good order, and waits for it: close() has a deadline of its own. REQUIRES: not on the loop.
Status closeAndWait(Fabric& fabric);

}  // namespace sluice::fabric
