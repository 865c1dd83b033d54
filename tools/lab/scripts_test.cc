#include <tools/lab/scripts.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Layout twoHosts() {
  Layout layout;
  layout.name = "x";
  layout.hosts = 2;
  return layout;
}

TEST(Shaping, LeavesALinkAloneThatIsToBeAsFastAsTheMachine) {
  EXPECT_EQ(hostShapingScript(kUnshaped, Duration(0)), "qdisc replace dev eth0 root noqueue\n");
  EXPECT_EQ(hostShapingScript(kUnshaped, std::chrono::milliseconds(1)),
            "qdisc replace dev eth0 root handle 1: netem delay 1000us limit 1000000\n");
  EXPECT_EQ(switchShapingScript({{2, kUnshaped}}), "qdisc replace dev h2 root noqueue\n");
}

TEST(Scripts, TheBurstIsNeverBelow128KiBAndTheQueueHoldsFiveMilliseconds) {
  EXPECT_EQ(shapeFor(Rate{100'000'000}).burstBytes, 131072U);
  EXPECT_EQ(shapeFor(Rate{100'000'000}).queueBytes, 262144U);
  EXPECT_EQ(shapeFor(Rate{1'000'000'000}).burstBytes, 131072U);
  EXPECT_EQ(shapeFor(Rate{1'000'000'000}).queueBytes, 625000U);
  EXPECT_EQ(shapeFor(Rate{10'000'000'000}).burstBytes, 1250000U);
}

TEST(Scripts, LinksAreMadeInsideTheLabsNamespaces) {
  EXPECT_EQ(namespacesScript(twoHosts()),
            "netns add sluice-x-switch\nnetns add sluice-x-h0\nnetns add sluice-x-h1\n");
  EXPECT_THAT(
      switchScript(twoHosts()),
      HasSubstr(
          "link add h1 type veth peer name eth0 address 02:51:ce:00:00:01 netns sluice-x-h1\n"));
  EXPECT_EQ(forwardingScript(twoHosts()),
            "fdb replace 02:51:ce:00:00:00 dev h0 master static\n"
            "fdb replace 02:51:ce:00:00:01 dev h1 master static\n");
}

TEST(Scripts, AHostKnowsItsNeighboursBeforeItAsks) {
  Layout layout = twoHosts();
  EXPECT_EQ(hostScript(layout, 0),
            "link set lo up\n"
            "link set eth0 addrgenmode none up\n"
            "addr add 10.77.0.1/16 dev eth0\n"
            "neigh replace 10.77.0.2 lladdr 02:51:ce:00:00:01 dev eth0 nud permanent\n");
  layout.congestionControl = "cubic";
  EXPECT_THAT(hostScript(layout, 1), HasSubstr("src 10.77.0.2 congctl cubic\n"));
}

TEST(Scripts, ShapesBothEndsAndDelaysOnlyWhenAsked) {
  EXPECT_EQ(
      hostShapingScript(Rate{100'000'000}, Duration(0)),
      "qdisc replace dev eth0 root handle 1: tbf rate 100000000bit burst 131072 limit 262144\n");
  EXPECT_EQ(
      switchShapingScript({{3, Rate{100'000'000}}}),
      "qdisc replace dev h3 root handle 1: tbf rate 100000000bit burst 131072 limit 262144\n");
  EXPECT_THAT(hostShapingScript(Rate{100'000'000}, std::chrono::milliseconds(10)),
              HasSubstr("netem delay 10000us"));
}

TEST(Scripts, FaultsDropBothWaysAndNothingIsRejected) {
  Faults faults;
  faults.cutHosts = {2};
  faults.cutPairs = {{0, 1}};
  faults.dropPercent = {{3, 2.5}};
  const std::string script = faultScript(faults);
  for (const char* rule : {
           "iifname \"h2\" drop",
           "oifname \"h2\" drop",
           "iifname \"h0\" oifname \"h1\" drop",
           "iifname \"h1\" oifname \"h0\" drop",
           "iifname \"h3\" numgen random mod 100000 < 2500 drop",
           "oifname \"h3\" numgen random mod 100000 < 2500 drop",
       }) {
    EXPECT_THAT(script, HasSubstr(rule));
  }
  EXPECT_THAT(script, Not(HasSubstr("reject")));
  EXPECT_THAT(faultScript({}), Not(HasSubstr("drop")));
}

}  // namespace
}  // namespace sluice::lab
