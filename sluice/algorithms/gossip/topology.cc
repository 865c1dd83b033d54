#include <sluice/algorithms/gossip/topology.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/base/check.h>

namespace sluice::gossip {
namespace {

constexpr std::array kShapes{GraphShape::kRing, GraphShape::kTorus, GraphShape::kExponential,
                             GraphShape::kRandomRegular, GraphShape::kComplete};

// Knows which workers can reach each other.
class Pieces final {
 public:
  explicit Pieces(uint32_t workers) : parent_(workers) {
    std::iota(parent_.begin(), parent_.end(), 0U);
  }
  uint32_t of(uint32_t worker) const {
    while (parent_[worker] != worker) worker = parent_[worker];
    return worker;
  }
  // Joins the pieces of two workers; true iff they were apart.
  bool join(uint32_t a, uint32_t b) {
    const uint32_t from = of(a);
    const uint32_t to = of(b);
    parent_[from] = to;
    return from != to;
  }

 private:
  std::vector<uint32_t> parent_;
};

uint32_t distance(uint32_t a, uint32_t b, uint32_t workers) {
  const uint32_t straight = a < b ? b - a : a - b;
  return std::min(straight, workers - straight);
}

// Returns the number of rows of a torus: the largest divisor up to the root, of those that make both
// sides even if there are any.
uint32_t rowsOfTorus(uint32_t workers) {
  const uint32_t step = workers % 4 == 0 ? 2 : 1;
  uint32_t rows = step;
  for (uint32_t r = step; r * r <= workers; r += step) {
    if (workers % (r * step) == 0) rows = r;
  }
  return rows;
}

// Returns all edges of the shape, both sides alike, loops and repetitions included.
std::vector<Edge> edgesOf(GraphShape shape, uint32_t workers, uint64_t seed) {
  std::vector<Edge> edges;
  const auto add = [&](uint32_t a, uint32_t b) { edges.emplace_back(a, b % workers); };
  switch (shape) {
    case GraphShape::kRing:
      for (uint32_t w = 0; w < workers; ++w) add(w, w + 1);
      break;
    case GraphShape::kTorus: {
      const uint32_t rows = rowsOfTorus(workers);
      const uint32_t columns = workers / rows;
      // A worker's side is the parity of its number. Where rows have an even length, each row is
      // turned by one against the row above, so that sides alternate in columns, too.
      const auto at = [&](uint32_t row, uint32_t column) {
        const uint32_t turn = columns % 2 == 0 ? row : 0;
        return row * columns + (column + turn) % columns;
      };
      for (uint32_t row = 0; row < rows; ++row) {
        for (uint32_t column = 0; column < columns; ++column) {
          add(at(row, column), at(row, (column + 1) % columns));
          add(at(row, column), at((row + 1) % rows, column));
        }
      }
      break;
    }
    case GraphShape::kExponential:
      for (uint32_t w = 0; w < workers; ++w) {
        add(w, w + 1);
        for (uint32_t power = 2; power + 1 < workers; power *= 2) add(w, w + power + 1);
      }
      break;
    case GraphShape::kComplete:
      for (uint32_t w = 0; w < workers; ++w) {
        for (uint32_t other = w + 1; other < workers; ++other) add(w, other);
      }
      break;
    case GraphShape::kRandomRegular: {
      // Put three random orders of the passive side beside the active side: each worker has three
      // partners, but for draws that repeat.
      constexpr int kDegree = 3;
      std::mt19937_64 random(seed);
      std::vector<uint32_t> passive;
      for (uint32_t w = 1; w < workers; w += 2) passive.push_back(w);
      for (int draw = 0; draw < kDegree && !passive.empty(); ++draw) {
        // Shuffles by hand: the standard leaves the draws of std::shuffle open, and all ranks must
        // have the same graph.
        for (size_t i = passive.size() - 1; i > 0; --i)
          std::swap(passive[i], passive[random() % (i + 1)]);
        for (uint32_t w = 0; w < workers; w += 2) add(w, passive[(w / 2) % passive.size()]);
      }
      break;
    }
  }
  return edges;
}

}  // namespace

std::string_view name(GraphShape shape) {
  switch (shape) {
    case GraphShape::kRing: return "ring";
    case GraphShape::kTorus: return "torus";
    case GraphShape::kExponential: return "exponential";
    case GraphShape::kRandomRegular: return "random-regular";
    case GraphShape::kComplete: return "complete";
  }
  return "?";
}

Result<GraphShape> parseShape(std::string_view text) {
  std::vector<std::string_view> names;
  for (const GraphShape shape : kShapes) {
    if (name(shape) == text) return shape;
    names.push_back(name(shape));
  }
  return Status(Code::kInvalidArgument, fmt::format("there is no topology '{}'; use one of {}",
                                                    text, fmt::join(names, ", ")));
}

std::string GossipGraph::describeAdded() const {
  std::string text;
  for (const auto& [active, passive] : added)
    text += fmt::format("{}{}-{}", text.empty() ? "" : ", ", active, passive);
  return text;
}

GossipGraph makeTopology(GraphShape shape, uint32_t workers, uint64_t seed) {
  SLUICE_CHECK(workers > 0);
  std::set<Edge> edges;
  Pieces pieces(workers);
  const auto take = [&](uint32_t a, uint32_t b) {
    edges.insert(isActive(a) ? Edge{a, b} : Edge{b, a});
    pieces.join(a, b);
  };
  // Edges between two workers of one side are left out: an exchange needs an active and a passive
  // worker. Pieces that fall apart by that are joined below, by the shortest edges that do so.
  for (const auto& [a, b] : edgesOf(shape, workers, seed)) {
    if (isActive(a) != isActive(b)) take(a, b);
  }
  GossipGraph topology{.neighbours = std::vector<std::vector<uint32_t>>(workers), .added = {}};
  std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> candidates;  // distance, active, passive
  for (uint32_t active = 0; active < workers; active += 2) {
    for (uint32_t passive = 1; passive < workers; passive += 2)
      candidates.emplace_back(distance(active, passive, workers), active, passive);
  }
  std::ranges::sort(candidates);
  for (const auto& [apart, active, passive] : candidates) {
    if (pieces.of(active) == pieces.of(passive)) continue;
    take(active, passive);
    topology.added.emplace_back(active, passive);
  }
  for (const auto& [active, passive] : edges) {
    topology.neighbours[active].push_back(passive);
    topology.neighbours[passive].push_back(active);
  }
  for (auto& list : topology.neighbours) std::ranges::sort(list);
  return topology;
}

}  // namespace sluice::gossip
