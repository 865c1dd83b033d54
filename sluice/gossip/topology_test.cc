#include <sluice/gossip/topology.h>

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::gossip {
namespace {

using ::testing::ElementsAre;

constexpr Shape kShapes[] = {Shape::kRing, Shape::kTorus, Shape::kExponential,
                             Shape::kRandomRegular};

size_t reachable(const Topology& topology) {
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

TEST(Topology, JoinsTheTwoSidesAndEverybody) {
  for (const Shape shape : kShapes) {
    for (uint32_t workers = 1; workers <= 40; ++workers) {
      SCOPED_TRACE(std::string(name(shape)) + " of " + std::to_string(workers));
      const Topology topology = makeTopology(shape, workers, 7);
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

TEST(Topology, AreWhatTheirNamesSay) {
  const Topology ring = makeTopology(Shape::kRing, 6, 0);
  EXPECT_THAT(ring.neighbours[0], ElementsAre(1U, 5U));
  EXPECT_THAT(ring.neighbours[3], ElementsAre(2U, 4U));
  EXPECT_EQ(ring.describeAdded(), "");
  // Seven in a ring: 6 and 0 are both active, so that edge is not there, and no edge is missing.
  EXPECT_THAT(makeTopology(Shape::kRing, 7, 0).neighbours[0], ElementsAre(1U));
  // Three by three: one way round or the other, neighbours of the same side fall away.
  EXPECT_THAT(makeTopology(Shape::kTorus, 9, 0).neighbours[4], ElementsAre(1U, 3U, 5U, 7U));
  // Two by four: those above each other are of one side, so the two rows would be apart.
  const Topology torus = makeTopology(Shape::kTorus, 8, 0);
  EXPECT_EQ(torus.describeAdded(), "0-7");
  EXPECT_THAT(makeTopology(Shape::kExponential, 8, 0).neighbours[0], ElementsAre(1U, 7U));
}

TEST(Topology, RandomOnesDependOnTheSeedOnly) {
  const auto first = makeTopology(Shape::kRandomRegular, 16, 3);
  EXPECT_EQ(first.neighbours, makeTopology(Shape::kRandomRegular, 16, 3).neighbours);
  EXPECT_NE(first.neighbours, makeTopology(Shape::kRandomRegular, 16, 4).neighbours);
  for (const auto& neighbours : first.neighbours) EXPECT_LE(neighbours.size(), 3U);
}

TEST(Topology, NamesAreRead) {
  for (const Shape shape : kShapes) EXPECT_EQ(parseShape(name(shape)).value(), shape);
  EXPECT_EQ(parseShape("star").status().message(),
            "there is no topology 'star'; use one of ring, torus, exponential, random-regular");
}

}  // namespace
}  // namespace sluice::gossip
