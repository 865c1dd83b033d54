// The fabric inside one process: ranks are loops, usually one thread each, and a payload is copied
// once, straight from the sender's buffer into the receiver's. For tests, simulations and
// single-process jobs; works on any Loop, so a ManualLoop makes every interleaving repeatable.
#pragma once

#include <chrono>
#include <memory>

#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/node_fabric.h>

namespace sluice::fabric {

// The place where the ranks of one process find each other. Any thread.
class LoopbackHub final {
 public:
  explicit LoopbackHub(size_t worldSize, Epoch epoch = Epoch{0});
  ~LoopbackHub();

  struct Options {
    Duration closeDeadline = std::chrono::seconds(2);
  };

  // Makes the fabric of one rank. REQUIRES: `loop` outlives it; `receiver` outlives it; the rank is
  // not taken.
  std::unique_ptr<NodeFabric> join(Rank rank, Loop& loop, Receiver& receiver, Options options);
  std::unique_ptr<NodeFabric> join(Rank rank, Loop& loop, Receiver& receiver) {
    return join(rank, loop, receiver, Options{});
  }

 private:
  class Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace sluice::fabric
