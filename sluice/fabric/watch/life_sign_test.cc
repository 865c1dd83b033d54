#include <sluice/fabric/watch/life_sign.h>

#include <gtest/gtest.h>

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;

const std::vector<LifeSign> kSigns{
    Heartbeat{.sent = TimePoint(5s), .echo = {}},
    Heartbeat{.sent = TimePoint(7s), .echo = TimePoint(3s), .held = 20ms},
    Heartbeat{.sent = TimePoint(-7s), .echo = TimePoint(0s), .held = 0s},
    LossNotice{Rank{3}, Rank{1}, "nothing heard for 2.0 s"},
    LossNotice{Rank{4095}, Rank{0}, ""},
};

TEST(LifeSign, ComesBackFromItsBytes) {
  for (const LifeSign& sign : kSigns) {
    EXPECT_EQ(parseLifeSign(toBytes(sign)), sign);
  }
}

TEST(LifeSign, CutsALongReason) {
  const auto bytes = toBytes(LossNotice{Rank{3}, Rank{1}, std::string(5000, 'x')});
  EXPECT_EQ(bytes.size(), kMaxLifeSignBytes);
  EXPECT_TRUE(parseLifeSign(bytes));
}

TEST(LifeSign, IsRefusedShortLongOrUnknown) {
  EXPECT_FALSE(parseLifeSign({}));
  for (const LifeSign& sign : kSigns) {
    auto bytes = toBytes(sign);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(parseLifeSign(std::span(bytes).first(size))) << size;
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(parseLifeSign(bytes));
    bytes[0] = std::byte{9};
    EXPECT_FALSE(parseLifeSign(bytes));
  }
}

}  // namespace
}  // namespace sluice::fabric
