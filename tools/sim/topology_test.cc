#include <tools/sim/topology.h>

#include <gtest/gtest.h>

#include <tools/sim/topology_file.h>

namespace sluice::sim {
namespace {

constexpr Rate kGigabitRate{1'000'000'000};

TEST(Topology, IsReadAndPrinted) {
  EXPECT_EQ(parseTopology("star").value(), Topology{});
  EXPECT_EQ(parseTopology("racks:16x4").value(),
            (Topology{.hostsPerRack = 16, .oversubscription = 4}));
  EXPECT_EQ(parseTopology("racks:16x2.5").value().toString(), "racks:16x2.5");
  for (const char* text : {"", "ring", "racks:", "racks:16", "racks:0x4", "racks:4x0", "racks:xx"})
    EXPECT_EQ(parseTopology(text).status().code(), Code::kInvalidArgument) << text;
  EXPECT_FALSE(parseTopology("/nowhere/cluster.json").isOk());
}

TEST(Topology, IsReadFromJson) {
  const auto read = parseTopologyJson(
      R"({"hosts_per_rack": 4, "uplink": "2gbit", "racks": {"1": {"out": "500mbit"}},
          "hosts": {"0": {"rate": "3gbit"}, "7": {"in": "100mbit"}}})",
      "cluster.json");
  ASSERT_TRUE(read.isOk()) << read.status().toString();
  EXPECT_EQ(read->toString(), "cluster.json");
  EXPECT_EQ(read->racksFor(9), 3U);
  EXPECT_EQ(read->ofHost(0, kGigabitRate), (LinkRates{Rate{3'000'000'000}, Rate{3'000'000'000}}));
  EXPECT_EQ(read->ofHost(1, kGigabitRate), (LinkRates{kGigabitRate, kGigabitRate}));
  EXPECT_EQ(read->ofHost(7, kGigabitRate), (LinkRates{kGigabitRate, Rate{100'000'000}}));
  EXPECT_EQ(read->ofRack(0, kGigabitRate), (LinkRates{Rate{2'000'000'000}, Rate{2'000'000'000}}));
  EXPECT_EQ(read->ofRack(1, kGigabitRate), (LinkRates{Rate{500'000'000}, Rate{2'000'000'000}}));
  EXPECT_TRUE(read->check(8).isOk());
  EXPECT_EQ(read->check(7).code(), Code::kInvalidArgument);  // no host 7
  EXPECT_EQ(read->check(4).code(), Code::kInvalidArgument);  // no rack 1
}

TEST(Topology, RefusesNonsenseInOneLine) {
  for (const char* text : {"",
                           "[]",
                           "3",
                           "{",
                           R"({"host": {}})",
                           R"({"hosts_per_rack": 0})",
                           R"({"hosts_per_rack": 1.5})",
                           R"({"hosts_per_rack": "4"})",
                           R"({"uplink": "1gbit"})",
                           R"({"racks": {"0": {"rate": "1gbit"}}})",
                           R"({"hosts_per_rack": 4, "uplink": 7})",
                           R"({"hosts_per_rack": 4, "uplink": "0gbit"})",
                           R"({"hosts": {"-1": {"rate": "1gbit"}}})",
                           R"({"hosts": {"one": {"rate": "1gbit"}}})",
                           R"({"hosts": {"1": {}}})",
                           R"({"hosts": {"1": "1gbit"}})",
                           R"({"hosts": ["1gbit"]})",
                           R"({"hosts": {"1": {"speed": "1gbit"}}})",
                           R"({"hosts": {"1": {"rate": "fast"}}})",
                           R"({"hosts": {"1": {"rate": "1gbit", "in": "1gbit"}}})"}) {
    const Status status = parseTopologyJson(text, "cluster.json").status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("cluster.json"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace sluice::sim
