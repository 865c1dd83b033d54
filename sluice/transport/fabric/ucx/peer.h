// The knowledge of a rank's node about another rank. Values that node.h works on; loop thread only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/ucx/envelope.h>
#include <sluice/transport/fabric/ucx/handles.h>
#include <sluice/transport/fabric/ucx/send_window.h>

namespace sluice::fabric::ucx {

// Counts the messages of a lane that have been taken. They are taken in any order (a long payload
// is still coming while the next message is there already); the sender is told of the unbroken run
// from the start. One owner.
class Taken final {
 public:
  void mark(uint64_t sequence) {
    beyond_.insert(sequence);
    while (!beyond_.empty() && *beyond_.begin() == upTo_) {
      beyond_.erase(beyond_.begin());
      ++upTo_;
    }
  }
  uint64_t upTo() const { return upTo_; }  // all before this number are taken

 private:
  uint64_t upTo_ = 0;
  std::set<uint64_t> beyond_;
};

class Node;

// A message that waits in its lane for room in the window. The payload is still the caller's
// memory.
struct Queued {
  wire::Header header;
  ConstBuffer payload;
  Done done;  // null for the fabric's own
};

// A message in UCX's hands. It lives until UCX's callback has come; UCX always calls it.
struct Flying {
  Node* node;
  Rank to;
  uint64_t bytes;
  Done done;
  Envelope envelope;  // UCX does not copy it
  std::list<Flying>::iterator self;
};

// A payload that UCX is fetching into its landing.
struct Fetching {
  Node* node;
  wire::Header header;
  std::optional<uint32_t> checksum;
  ConstBuffer landed;
  Done done;
  std::list<Fetching>::iterator self;
};

// A message that its receiver has not taken yet, and the place of its payload.
struct Arrived {
  wire::Header header;
  std::optional<uint32_t> checksum{};  // computed by its sender; empty if it is not wanted
  const std::byte* data = nullptr;     // null when it must be fetched
  std::vector<std::byte> copy{};       // the bytes at `data`, once the message has to be kept
  void* descriptor = nullptr;          // UCX's: given back, or fetched from
  Done senderDone{};  // of a message to oneself, whose `data` is the sender's memory
};

// One lane, both ways.
struct Stream {
  explicit Stream(size_t windowBytes) : window(windowBytes) {}

  std::unique_ptr<Endpoint> endpoint;  // made on first use, in either direction

  uint64_t nextToSend = 0;
  std::deque<Queued> queue;
  SendWindow window;

  uint64_t nextToOffer = 0;
  std::map<uint64_t, Arrived> waiting;  // came before their turn, or were told later
  bool isStopped = false;               // the receiver said later
  Taken taken;
  uint64_t toldTaken = 0;    // taken.upTo() as last told to the sender
  uint64_t untoldBytes = 0;  // taken since
  bool isTellDue = false;

  bool isFlushed() const { return queue.empty() && window.isEmpty(); }
};

struct Peer {
  explicit Peer(Rank who, size_t windowBytes)
      : rank(who), streams{Stream(windowBytes), Stream(windowBytes), Stream(windowBytes)} {}

  Stream& stream(Lane lane) { return streams[static_cast<size_t>(lane)]; }
  bool isIdle() const { return flying.empty() && fetching.empty(); }  // UCX holds nothing of ours

  const Rank rank;
  std::array<Stream, wire::kLanes> streams;
  std::list<Flying> flying;
  std::list<Fetching> fetching;
  std::optional<TimePoint> lastHeard;
  bool saidGoodbye = false;  // we to it
  Status gone;               // the reason why nothing can be sent to it any more
  bool isNewsDue =
      false;  // the receiver must hear that it is gone, once UCX has let go of all buffers
};

}  // namespace sluice::fabric::ucx
