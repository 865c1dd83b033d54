// Sends one rank's bytes to every rank along a binary tree, so that no rank sends more than two
// copies. It carries data outside the path of slices: first parameters and buffers. Every rank
// calls broadcast() in the same order.
//
// Belongs to the fabric's loop. It has the urgent lane to itself: a message for a broadcast that
// has not been called here yet stops that lane, and must not stop training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sluice/transport/fabric/deferred_lanes.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::session {

inline constexpr fabric::Lane kBroadcastLane = fabric::Lane::kUrgent;

// The bytes of a broadcast, shared with the fabric: it may still work on them when the broadcast
// has failed and its caller is gone.
using SharedBytes = std::shared_ptr<std::vector<std::byte>>;

class Broadcast final {
 public:
  explicit Broadcast(fabric::Fabric& fabric) : fabric_(fabric) {}

  // Starts a broadcast. `done` runs when the root's bytes are in `data`, and the copies for other
  // ranks are on their way, beyond recall.
  void start(Rank root, SharedBytes data, fabric::Done done);

  Result<fabric::Landing> onMessage(Rank from, const wire::Header& header);

  // Ends all broadcasts after the first `count` with `why`, now and later: some rank takes part in
  // no others.
  void endAfter(uint64_t count, const Status& why);
  void fail(const Status& why) { endAfter(0, why); }

  uint64_t begun() const { return nextSequence_; }

 private:
  struct Underway {
    Rank root;
    SharedBytes data;
    fabric::Done done;
    size_t left;                   // pieces to receive, and to send
    std::vector<bool> hasBegun{};  // by piece: true iff it is coming in, or here
  };

  struct End {
    uint64_t count;
    Status why;
  };

  // The nodes of the tree are positions. A rank's position is its distance from the root, going
  // around.
  uint32_t positionOf(Rank rank, Rank root) const;
  Rank rankAt(uint32_t position, Rank root) const;
  std::vector<Rank> childrenOf(Rank root) const;

  static std::span<std::byte> piece(std::vector<std::byte>& data, uint32_t number);
  void forward(uint64_t sequence, uint32_t number);
  void finished(uint64_t sequence);

  fabric::Fabric& fabric_;
  uint64_t nextSequence_ = 0;
  std::map<uint64_t, Underway> underway_;  // by sequence
  fabric::DeferredLanes deferred_;         // lanes of ranks that began before this one
  std::optional<End> end_;                 // the earliest one known
};

}  // namespace sluice::session
