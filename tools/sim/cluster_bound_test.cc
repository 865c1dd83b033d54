#include <tools/sim/cluster_bound.h>

#include <gtest/gtest.h>

#include <sluice/data/timing/bounds.h>

namespace sluice::sim {
namespace {

constexpr Rate kTenGigabit{10'000'000'000};
constexpr Rate kOneGigabit{1'000'000'000};

double secondsOver(double models, Rate rate) {
  return models * 8 / static_cast<double>(timing::payloadRate(rate).bitsPerSecond);
}

TEST(ClusterBound, TheBusiestLineDecides) {
  const plan::Roles roles = plan::parseRoles("all", 256).value();
  const double ofHost = secondsOver(2 * 255.0 / 256, kTenGigabit);
  NetworkOptions network{.hosts = 256, .rate = kTenGigabit};
  EXPECT_NEAR(busiestLine(network, roles).secondsPerModelByte, ofHost, 1e-6 * ofHost);

  network.topology = parseTopology("racks:16x4").value();
  const double ofUplink = 4 * secondsOver(2 * 240.0 / 256, kTenGigabit);
  EXPECT_NEAR(busiestLine(network, roles).secondsPerModelByte, ofUplink, 1e-6 * ofUplink);

  network.topology.racks[3] = {.out = kTenGigabit, .in = {}};  // a fourth of the other uplinks
  EXPECT_NEAR(busiestLine(network, roles).secondsPerModelByte, 4 * ofUplink, 1e-6 * ofUplink);

  network.topology = Topology{};
  network.topology.hosts[7] = {.out = {}, .in = kOneGigabit};
  const BusiestLine line = busiestLine(network, roles);
  EXPECT_NEAR(line.secondsPerModelByte, 10 * ofHost, 1e-5 * ofHost);
  EXPECT_FALSE(line.isUplink);
  EXPECT_EQ(line.number, 7U);
  EXPECT_EQ(line.rate, kOneGigabit);
}

}  // namespace
}  // namespace sluice::sim
