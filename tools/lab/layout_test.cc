#include <tools/lab/layout.h>

#include <gtest/gtest.h>

namespace sluice::lab {
namespace {

TEST(Layout, SubnetsAreReadAndRefusedWithAReason) {
  const auto subnet = parseSubnet("10.77.0.0/16");
  ASSERT_TRUE(subnet.isOk());
  EXPECT_EQ(*subnet, Subnet{});
  EXPECT_EQ(subnet->toString(), "10.77.0.0/16");
  EXPECT_EQ(hostAddress(*subnet, 0), "10.77.0.1");
  EXPECT_EQ(hostAddress(*subnet, 255), "10.77.1.0");

  for (const char* text : {"", "10.77.0.0", "10.77.0/16", "10.77.0.0/31", "10.77.0.1/16",
                           "10.77.0.0/x", "fd00::/64"}) {
    const auto refused = parseSubnet(text);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << text;
    EXPECT_NE(refused.status().message().find("10.77.0.0/16"), std::string::npos) << text;
  }
}

TEST(Layout, ChecksWhatCannotBeBuilt) {
  EXPECT_TRUE(Layout{}.check().isOk());
  const auto refuses = [](auto change) {
    Layout layout;
    change(layout);
    return layout.check().code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refuses([](Layout& l) { l.hosts = 0; }));
  EXPECT_TRUE(refuses([](Layout& l) { l.hosts = kMaxHosts + 1; }));
  EXPECT_TRUE(refuses([](Layout& l) { l.rate = Rate{1000}; }));
  EXPECT_TRUE(refuses([](Layout& l) { l.name = "a b"; }));
  EXPECT_TRUE(refuses([](Layout& l) { l.name = "../x"; }));
  EXPECT_TRUE(refuses([](Layout& l) { l.subnet.prefix = 30; }));
}

TEST(Layout, KnowsItsOwnNamespacesFromThoseOfSimilarNames) {
  EXPECT_TRUE(isNamespaceOf("a", switchNamespace("a")));
  EXPECT_TRUE(isNamespaceOf("a", hostNamespace("a", 31)));
  EXPECT_FALSE(isNamespaceOf("a", hostNamespace("a-h1", 2)));
  EXPECT_FALSE(isNamespaceOf("a", switchNamespace("a-h1")));
  EXPECT_FALSE(isNamespaceOf("a-h1", hostNamespace("a", 1)));
  EXPECT_FALSE(isNamespaceOf("a", "sluice-a-h"));
  EXPECT_FALSE(isNamespaceOf("a", "sluice-a-hx"));
  EXPECT_FALSE(isNamespaceOf("a", "mine"));
}

TEST(Layout, ACongestionControlIsAPlainName) {
  Layout layout;
  layout.congestionControl = "bbr";
  EXPECT_TRUE(layout.check().isOk());
  layout.congestionControl = "cubic\nlink del eth0";
  EXPECT_EQ(layout.check().message(),
            "invalid congestion control 'cubic\\nlink del eth0'; see "
            "net.ipv4.tcp_available_congestion_control");
}

}  // namespace
}  // namespace sluice::lab
