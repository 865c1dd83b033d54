#include <sluice/join/rendezvous/interface.h>

#include <gtest/gtest.h>

namespace sluice::rendezvous {
namespace {

Address at(const std::string& text) {
  return Address::parse(text).value();
}

const std::vector<Interface> kHost{{"lo", at("127.0.0.1:0")},
                                   {"eth0", at("10.0.0.7:0")},
                                   {"eth0", at("[2001:db8::7]:0")},
                                   {"ib0", at("192.168.5.7:0")}};

TEST(Interface, IsPinnedByNameOrNetwork) {
  struct Case {
    std::string pin;
    std::string master;
    std::string expected;
  };
  const std::vector<Case> cases{
      {"eth0", "10.0.0.1:1", "10.0.0.7"},
      {"eth0", "[2001:db8::1]:1", "2001:db8::7"},
      {"ib0", "10.0.0.1:1", "192.168.5.7"},
      {"10.0.0.0/24", "10.0.0.1:1", "10.0.0.7"},
      {"192.168.0.0/16", "10.0.0.1:1", "192.168.5.7"},
      {"2001:db8::/32", "10.0.0.1:1", "2001:db8::7"},
      {"192.168.5.7/32", "10.0.0.1:1", "192.168.5.7"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(chooseInterface(kHost, at(c.master), c.pin).value().address.host(), c.expected)
        << c.pin;
  }
}

TEST(Interface, AWrongPinIsAnsweredWithWhatExists) {
  for (const char* pin : {"eth1", "10.1.0.0/24", "10.0.0.0/33", "10.0.0.0/x", "/", "eth0/24"}) {
    const auto chosen = chooseInterface(kHost, at("10.0.0.1:1"), pin);
    ASSERT_FALSE(chosen.isOk()) << pin;
    EXPECT_NE(chosen.status().message().find("lo (127.0.0.1), eth0 (10.0.0.7)"), std::string::npos)
        << chosen.status().message();
  }
}

TEST(Interface, OtherwiseTheWayToTheMasterDecides) {
  const auto interfaces = listInterfaces().value();
  const Interface chosen = chooseInterface(interfaces, at("127.0.0.1:29500"), "").value();
  EXPECT_EQ(chosen.name, "lo");
  EXPECT_EQ(chosen.address.toString(), "127.0.0.1:0");
}

}  // namespace
}  // namespace sluice::rendezvous
