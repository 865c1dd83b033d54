#include <sluice/algorithms/gossip/topology.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::gossip {
namespace {

using ::testing::ElementsAre;

constexpr GraphShape kShapes[] = {GraphShape::kRing, GraphShape::kTorus, GraphShape::kExponential,
                                  GraphShape::kRandomRegular, GraphShape::kComplete};

size_t reachable(const GossipGraph& topology) {
  std::set<uint32_t> seen{0};
  std::vector<uint32_t> next{0};
  while (!next.empty()) {
    const uint32_t worker = next.back();
    next.pop_back();
    for (const uint32_t other : topology.neighbours[worker]) {
      if (seen.insert(other).second) next.push_back(other);
    }
  }
  return seen.size();
}

TEST(GossipGraph, JoinsTheTwoSidesAndEverybody) {
  for (const GraphShape shape : kShapes) {
    for (uint32_t workers = 1; workers <= 40; ++workers) {
      SCOPED_TRACE(std::string(name(shape)) + " of " + std::to_string(workers));
      const GossipGraph topology = makeTopology(shape, workers, 7);
      ASSERT_EQ(topology.neighbours.size(), workers);
      EXPECT_EQ(reachable(topology), workers);
      for (uint32_t worker = 0; worker < workers; ++worker) {
        const auto& neighbours = topology.neighbours[worker];
        EXPECT_EQ(std::set<uint32_t>(neighbours.begin(), neighbours.end()).size(),
                  neighbours.size());
        for (const uint32_t other : neighbours) {
          EXPECT_NE(isActive(worker), isActive(other)) << worker << " and " << other;
          const auto& back = topology.neighbours[other];
          EXPECT_NE(std::ranges::find(back, worker), back.end()) << worker << " and " << other;
        }
      }
    }
  }
}

TEST(GossipGraph, AreWhatTheirNamesSay) {
  const GossipGraph ring = makeTopology(GraphShape::kRing, 6, 0);
  EXPECT_THAT(ring.neighbours[0], ElementsAre(1U, 5U));
  EXPECT_THAT(ring.neighbours[3], ElementsAre(2U, 4U));
  EXPECT_EQ(ring.describeAdded(), "");
  // Seven in a ring: 6 and 0 are both active, so that edge is not there, and no edge is missing.
  EXPECT_THAT(makeTopology(GraphShape::kRing, 7, 0).neighbours[0], ElementsAre(1U));
  // Three by three: one way round or the other, neighbours of the same side fall away.
  EXPECT_THAT(makeTopology(GraphShape::kTorus, 9, 0).neighbours[4], ElementsAre(1U, 3U, 5U, 7U));
  // Two by three: the rows of three stay open.
  EXPECT_THAT(makeTopology(GraphShape::kTorus, 6, 0).neighbours[0], ElementsAre(1U, 3U));
  EXPECT_THAT(makeTopology(GraphShape::kTorus, 6, 0).neighbours[1], ElementsAre(0U, 2U, 4U));
  // A prime number of workers has one row.
  EXPECT_EQ(makeTopology(GraphShape::kTorus, 7, 0).neighbours,
            makeTopology(GraphShape::kRing, 7, 0).neighbours);
  EXPECT_THAT(makeTopology(GraphShape::kExponential, 16, 0).neighbours[0],
              ElementsAre(1U, 3U, 5U, 7U, 9U, 11U, 13U, 15U));
  EXPECT_THAT(makeTopology(GraphShape::kExponential, 24, 0).neighbours[0],
              ElementsAre(1U, 3U, 5U, 7U, 9U, 15U, 17U, 19U, 21U, 23U));
  EXPECT_THAT(makeTopology(GraphShape::kComplete, 7, 0).neighbours[2], ElementsAre(1U, 3U, 5U));
}

TEST(GossipGraph, ATorusOfTwoEvenSidesIsARealOne) {
  for (const uint32_t workers : {16U, 24U, 32U, 36U}) {
    const GossipGraph torus = makeTopology(GraphShape::kTorus, workers, 0);
    EXPECT_EQ(torus.describeAdded(), "") << workers;
    for (const auto& neighbours : torus.neighbours) EXPECT_EQ(neighbours.size(), 4U) << workers;
  }
  // Two rows: the one above is the one below.
  for (const auto& neighbours : makeTopology(GraphShape::kTorus, 8, 0).neighbours)
    EXPECT_EQ(neighbours.size(), 3U);
}

// Returns 1 - lambda2 of the expected averaging matrix of one meeting: an active worker, drawn at
// random, and one of its neighbours, drawn at random, go to their mean. The larger it is, the fewer
// meetings draw all models together.
double mixingOf(const GossipGraph& topology) {
  const size_t workers = topology.neighbours.size();
  // The matrix is I - D: D draws the two workers of an edge together.
  std::vector<std::vector<double>> draw(workers, std::vector<double>(workers));
  const auto active = static_cast<double>((workers + 1) / 2);
  for (uint32_t a = 0; a < workers; a += 2) {
    const auto& neighbours = topology.neighbours[a];
    for (const uint32_t p : neighbours) {
      const double share = 0.5 / active / static_cast<double>(neighbours.size());
      draw[a][a] += share;
      draw[p][p] += share;
      draw[a][p] -= share;
      draw[p][a] -= share;
    }
  }
  // Power iteration, orthogonal to the mean, whose eigenvalue is 1.
  std::vector<double> vector(workers);
  for (size_t i = 0; i < workers; ++i) vector[i] = std::sin(static_cast<double>(i * i + 1));
  double lambda = 0;
  for (int round = 0; round < 20'000; ++round) {
    double mean = 0;
    for (const double each : vector) mean += each / static_cast<double>(workers);
    double before = 0;
    for (double& each : vector) {
      each -= mean;
      before += each * each;
    }
    std::vector<double> next = vector;
    double after = 0;
    for (size_t i = 0; i < workers; ++i) {
      for (size_t j = 0; j < workers; ++j) next[i] -= draw[i][j] * vector[j];
      after += next[i] * next[i];
    }
    lambda = std::sqrt(after / before);
    for (double& each : next) each /= std::sqrt(after);
    vector = next;
  }
  return 1 - lambda;
}

TEST(GossipGraph, ExponentialAndTorusMixFasterThanTheRing) {
  struct Case {
    uint32_t workers;
    double ring;
    double least;  // times the ring's
  };
  for (const Case& c : {Case{8, 0.0366, 2}, Case{16, 0.0048, 5}, Case{24, 0.0014, 5}}) {
    const double ring = mixingOf(makeTopology(GraphShape::kRing, c.workers, 0));
    EXPECT_NEAR(ring, c.ring, 0.00005) << c.workers;
    for (const GraphShape shape :
         {GraphShape::kExponential, GraphShape::kTorus, GraphShape::kComplete}) {
      const double mixing = mixingOf(makeTopology(shape, c.workers, 0));
      EXPECT_GE(mixing, c.least * ring) << name(shape) << " of " << c.workers;
      RecordProperty(std::string(name(shape)) + std::to_string(c.workers),
                     std::to_string(mixing / ring));
    }
  }
}

TEST(GossipGraph, RandomOnesDependOnTheSeedOnly) {
  const auto first = makeTopology(GraphShape::kRandomRegular, 16, 3);
  EXPECT_EQ(first.neighbours, makeTopology(GraphShape::kRandomRegular, 16, 3).neighbours);
  EXPECT_NE(first.neighbours, makeTopology(GraphShape::kRandomRegular, 16, 4).neighbours);
  for (const auto& neighbours : first.neighbours) EXPECT_LE(neighbours.size(), 3U);
}

TEST(GossipGraph, NamesAreRead) {
  for (const GraphShape shape : kShapes) EXPECT_EQ(parseShape(name(shape)).value(), shape);
  EXPECT_EQ(
      parseShape("star").status().message(),
      "there is no topology 'star'; use one of ring, torus, exponential, random-regular, complete");
}

}  // namespace
}  // namespace sluice::gossip
