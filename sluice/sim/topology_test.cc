#include <sluice/sim/topology.h>

#include <gtest/gtest.h>

namespace sluice::sim {
namespace {

TEST(Topology, IsReadAndPrinted) {
  EXPECT_EQ(parseTopology("star").value(), Topology{});
  EXPECT_EQ(parseTopology("racks:16x4").value(), (Topology{16, 4}));
  EXPECT_EQ(parseTopology("racks:16x2.5").value().toString(), "racks:16x2.5");
  for (const char* text : {"", "ring", "racks:", "racks:16", "racks:0x4", "racks:4x0", "racks:xx"})
    EXPECT_EQ(parseTopology(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(Topology, AnUplinkCarriesWhatLeavesItsRack) {
  EXPECT_DOUBLE_EQ(Topology{}.modelsOverUplink(4), 0);
  const Topology racks{16, 4};
  EXPECT_DOUBLE_EQ(racks.modelsOverUplink(16), 0);
  EXPECT_DOUBLE_EQ(racks.modelsOverUplink(256), 4 * 2 * 240.0 / 256);
}

}  // namespace
}  // namespace sluice::sim
