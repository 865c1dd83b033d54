// Moves messages between the ranks of a job. This is the contract that every engine keeps
// (loopback/, tcp/, ucx/) and testing/contract_suite.h checks; docs/fabric.md has it in words.
//
// Threads. A Fabric belongs to one Loop. send(), close(), resume(), giveUp() and counters() may be
// called from any thread; every Done and every call of the Receiver runs on the loop's thread,
// never inside the call that caused it.
//
// Order. The headers of one lane from one rank reach the Receiver in the order in which they were
// sent (by one thread). Payloads may complete later, and lanes pass each other.
//
// Lifetime. A payload must stay alive and unchanged until its Done; a Landing's buffer until its
// Done. Every Done runs exactly once, whatever happens, the destruction of the Fabric included.
//
// Loss. When a rank dies, every send to it that is pending and every landing it was filling
// completes with kPeerLost and its name, then onPeerLost() comes, once. From then on sends to it
// fail at once with that first error. A rank that closes in good order has left instead:
// onPeerLeft() comes after its last message, and sends to it fail with kUnavailable.
//
// Pressure. The fabric copies no payload at the sender. A receiver that does not keep up, or
// answers Landing::later(), stops the stream at its sender, where the payloads still lie in the
// caller's own buffers.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include <sluice/base/ids.h>
#include <sluice/base/loop.h>
#include <sluice/base/status.h>
#include <sluice/model.h>
#include <sluice/observer.h>
#include <sluice/transport/wire/drop.h>
#include <sluice/transport/wire/header.h>

namespace sluice::fabric {

using wire::Lane;

struct ConstBuffer {
  const std::byte* data = nullptr;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
};

struct Buffer {
  std::byte* data = nullptr;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
};

using Done = std::function<void(const Status&)>;

// The sender's description of its payload. The fabric adds the epoch, both ranks, the lane, the
// sequence and the length, and the receiver sees it all as a wire::Header.
struct Message {
  Step step{};
  TensorId tensor{};
  SliceId slice{};
  Stage stage = Stage::kReady;
  wire::Flags flags = wire::Flags::kNone;  // kGoodbye and kHeartbeat are the fabric's own
  DType dtype = DType::kBytes;
};

// The place for a payload. `done` runs when the payload is all there, or with an error when it
// never will be.
struct Landing {
  // A buffer that is smaller than the header's length refuses the payload: `done` runs with
  // kRefused.
  Buffer buffer;
  Done done;

  // "Not yet": this lane of this rank stops until Fabric::resume(), then asks again with the same
  // header.
  static Landing later() {
    Landing landing;
    landing.isLater = true;
    return landing;
  }
  bool isLater = false;
};

// Gets the messages that arrive. Called on the fabric's loop.
class Receiver {
 public:
  virtual ~Receiver() = default;

  // Says where the payload of `header` goes. An error refuses it: the payload is read past and
  // counted, and the stream goes on; the sender is not told.
  virtual Result<Landing> onMessage(Rank from, Lane lane, const wire::Header& header) = 0;

  // Hears that `from` is gone without a goodbye. Called once per rank, after the completions that
  // this loss has ended.
  virtual void onPeerLost(Rank from, const Status& why) = 0;

  // Hears that `from` has closed in good order and nothing more comes from it. Called once per
  // rank.
  virtual void onPeerLeft(Rank from) = 0;
};

struct Counters {
  uint64_t messagesSent = 0;  // messages whose Done has run with success
  uint64_t bytesSent = 0;     // of payload
  uint64_t messagesReceived = 0;
  uint64_t bytesReceived = 0;
  uint64_t connections = 0;  // made or accepted and believed, over the fabric's life
  uint64_t strangers = 0;    // connections that did not prove the job key in time
  wire::DropCounters drops;
};

class Fabric {
 public:
  // Destroying a fabric without close() looks like a crash to the other ranks: no goodbye.
  // Everything that is pending completes with kCancelled before the destructor returns. Any thread,
  // but the loop must run until then (or have ended).
  virtual ~Fabric() = default;

  // Sends `payload` to a rank, oneself included. `done` runs when the payload is the caller's
  // again: the bytes are on their way, beyond recall, which does not say that they have arrived. A
  // payload has at most wire::kMaxLength bytes.
  virtual void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) = 0;

  // Leaves in good order: sends what is queued, says goodbye to every rank it has talked with, and
  // takes nothing more in. `done` runs when all that has ended, or with kTimeout once nobody has
  // taken anything of it for the engine's deadline. Sends that come later fail with kCancelled. A
  // second close() completes together with the first.
  virtual void close(Done done) = 0;

  // Ends a Landing::later(). Does nothing if that lane is not waiting.
  virtual void resume(Rank from, Lane lane) = 0;

  // Treats `peer` as lost because `why`: for code that watches over silence. Does nothing if the
  // peer is gone already.
  virtual void giveUp(Rank peer, Status why) = 0;

  // Returns the time when the last byte came from `peer`; empty if no byte ever did. Loop thread
  // only.
  virtual std::optional<TimePoint> lastHeard(Rank peer) const = 0;

  virtual Counters counters() const = 0;

  virtual Rank rank() const = 0;
  virtual size_t worldSize() const = 0;
  virtual Loop& loop() const = 0;
};

}  // namespace sluice::fabric
