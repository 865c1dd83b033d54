// One rank's bytes to every rank, along a binary tree, so that no rank sends more than two copies. For what
// is said outside the path of slices: first parameters, buffers. Every rank calls broadcast() in the same
// order.
//
// Belongs to the fabric's loop. It has the urgent lane to itself: a message for a broadcast that has not been
// called here yet stops that lane, and must not stop training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>

#include <sluice/fabric/fabric.h>

namespace sluice::session {

inline constexpr fabric::Lane kBroadcastLane = fabric::Lane::kUrgent;

class Broadcast final {
 public:
  explicit Broadcast(fabric::Fabric& fabric) : fabric_(fabric) {}

  // `done` runs when the root's bytes are in `data`, and the copies for others are beyond recall.
  void start(Rank root, std::span<std::byte> data, fabric::Done done);

  Result<fabric::Landing> onMessage(Rank from, const wire::Header& header);

  // Everything that is under way ends with `why`.
  void fail(const Status& why);

 private:
  struct Underway {
    Rank root;
    std::span<std::byte> data;
    fabric::Done done;
    size_t left;  // pieces to receive, and to send
  };

  // A tree over positions: a rank's distance from the root, going around.
  uint32_t positionOf(Rank rank, Rank root) const;
  Rank rankAt(uint32_t position, Rank root) const;
  std::vector<Rank> childrenOf(Rank root) const;

  std::span<std::byte> piece(const Underway& underway, uint32_t number) const;
  void forward(uint64_t sequence, uint32_t number);
  void finished(uint64_t sequence);

  fabric::Fabric& fabric_;
  uint64_t nextSequence_ = 0;
  std::map<uint64_t, Underway> underway_;  // by sequence
  std::set<Rank> heldBack_;                // sent before we called
};

}  // namespace sluice::session
