// The pairs of workers that average with each other when there are no servers: a graph over the
// workers with an *active* and a *passive* side. Only active workers begin an exchange, and only
// with passive workers, which never wait for anybody. So no circle of waiting can close, whatever
// the number of workers. A pure function of its arguments: every rank calculates the same graph.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::gossip {

enum class GraphShape : uint8_t {
  kRing,  // the next and the one before
  // A grid as square as the number of workers allows, coloured like a checkerboard. A side of even
  // length closes on itself. With an odd length the two ends would be of one colour, so that side
  // stays open. Two even sides are preferred: they exist if the number is divisible by four.
  kTorus,
  kExponential,  // at the odd distances 1, 3, 5, 9, ..., 2^k + 1: even ones join workers of one side
  kRandomRegular,  // three neighbours each, drawn at random
  kComplete,       // every worker of the other side
};
std::string_view name(GraphShape shape);
Result<GraphShape> parseShape(std::string_view text);

// An edge: the active worker, then the passive one, by position.
using Edge = std::pair<uint32_t, uint32_t>;

struct GossipGraph {
  std::vector<std::vector<uint32_t>> neighbours;  // by worker: ascending, all of the other side
  std::vector<Edge> added;                        // edges without which the graph would fall apart

  std::string describeAdded() const;  // "0-3, 4-7"; empty without such edges
};

// Every second worker is active, so that the sides differ by one at most.
constexpr bool isActive(uint32_t worker) {
  return worker % 2 == 0;
}

// Keeps the edges of the shape that join the two sides. If that leaves the graph in pieces, adds
// the missing edges between the nearest workers. A single worker has no neighbours. REQUIRES: at
// least one worker
GossipGraph makeTopology(GraphShape shape, uint32_t workers, uint64_t seed);

}  // namespace sluice::gossip
