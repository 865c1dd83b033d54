#include <tools/sim/rack_simulation.h>

#include <gtest/gtest.h>

#include <sluice/base/options.h>
#include <sluice/base/testing/short_tests.h>

namespace sluice::sim {
namespace {

SimulationOptions rackJob(uint32_t hosts) {
  SimulationOptions options{
      .fidelity = Fidelity::kRacks, .profile = "resnet18", .algorithm = "sluice"};
  options.computeSeconds = 0.07;
  options.warmUp = 1;
  options.iterations = 2;
  options.network.hosts = hosts;
  options.network.topology = {.hostsPerRack = 16, .oversubscription = 1};
  EXPECT_TRUE(options.config.set(option::kShrink, "64").isOk());
  return options;
}

TEST(RackSimulation, IsNearTheSimulationOfAllHosts) {
  if (base::testsAreShort()) GTEST_SKIP() << "other builds compare the figures";
  SimulationOptions options = rackJob(32);
  options.profile = "resnet50";
  options.computeSeconds = 0.16;
  options.iterations = 1;
  const auto racks = simulate(options);
  options.fidelity = Fidelity::kHosts;
  const auto hosts = simulate(options);
  ASSERT_TRUE(racks.isOk()) << racks.status().toString();
  ASSERT_TRUE(hosts.isOk()) << hosts.status().toString();
  EXPECT_GE(racks->iterationSeconds, racks->boundSeconds);
  EXPECT_NEAR(racks->iterationSeconds / hosts->iterationSeconds, 1, 0.15);
  EXPECT_NEAR(racks->messages / hosts->messages, 1, 0.01);
  EXPECT_NEAR(racks->bytes / hosts->bytes, 1, 0.01);
}

TEST(RackSimulation, SlowUplinksAndBusyHostsTakeTime) {
  const auto fast = simulate(rackJob(256));
  SimulationOptions options = rackJob(256);
  options.network.topology.oversubscription = 4;
  const auto uplinks = simulate(options);
  options = rackJob(256);
  options.costs = parseCosts("plain").value();
  const auto busy = simulate(options);
  ASSERT_TRUE(fast.isOk() && uplinks.isOk() && busy.isOk());
  EXPECT_GT(uplinks->iterationSeconds, uplinks->boundSeconds);
  EXPECT_GT(uplinks->iterationSeconds, 2 * fast->iterationSeconds);
  EXPECT_EQ(fast->busiestLoop, 0);
  EXPECT_GT(busy->busiestLoop, 0.3);
  EXPECT_GT(busy->iterationSeconds, fast->iterationSeconds);
}

TEST(RackSimulation, HasTheSameTraceForTheSameSeedOnly) {
  SimulationOptions options = rackJob(64);
  const uint64_t first = simulate(options).value().traceHash;
  EXPECT_EQ(simulate(options).value().traceHash, first);
  options.network.seed = 2;
  EXPECT_NE(simulate(options).value().traceHash, first);
}

TEST(RackSimulation, RefusesWhatNeedsTheHostsOneByOne) {
  SimulationOptions options = rackJob(40);
  EXPECT_EQ(simulate(options).status().code(), Code::kInvalidArgument);
  options = rackJob(32);
  options.algorithm = "kvstore";
  EXPECT_EQ(simulate(options).status().code(), Code::kInvalidArgument);
  options = rackJob(32);
  options.faults = parseFaults("lose:5@8ms").value();
  EXPECT_EQ(simulate(options).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::sim
