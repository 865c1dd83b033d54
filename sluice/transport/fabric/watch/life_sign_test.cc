#include <sluice/transport/fabric/watch/life_sign.h>

#include <gtest/gtest.h>

#include <sluice/transport/fabric/watch/clock_offset.h>

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;

const std::vector<LifeSign> kSigns{
    Heartbeat{.sent = TimePoint(5s), .echo = {}},
    Heartbeat{.sent = TimePoint(7s), .echo = TimePoint(3s), .held = 20ms},
    Heartbeat{.sent = TimePoint(-7s), .echo = TimePoint(0s), .held = 0s},
    LossNotice{Rank{3}, Rank{1}, "nothing heard for 2.0 s"},
    LossNotice{Rank{4095}, Rank{0}, ""},
    PulseBeat{.busy = 4200ms, .training = {}},
    PulseBeat{.busy = 0ms, .training = {base::Doing::kForward, 12, 9min}},
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

// Whatever a member sends as a time, the sums that are made of it stay within 64 bits (UBSan looks
// on).
TEST(LifeSign, NoTimeIsTooFarAwayToCalculateWith) {
  const TimePoint now(std::chrono::hours(24 * 365));
  for (const Duration far : {Duration::max(), Duration::min(), Duration(-1)}) {
    for (const Duration held : {Duration::max(), Duration::min(), Duration(0)}) {
      for (const Duration echo : {Duration::max(), Duration::min(), Duration(0)}) {
        const auto sign = parseLifeSign(
            toBytes(Heartbeat{.sent = TimePoint(far), .echo = TimePoint(echo), .held = held}));
        ASSERT_TRUE(sign);
        const auto& beat = std::get<Heartbeat>(*sign);
        EXPECT_LE(beat.sent, TimePoint(kFarthest));
        EXPECT_GE(beat.sent, TimePoint(-kFarthest));
        const auto measured =
            ClockExchange{*beat.echo, beat.sent - beat.held, beat.sent, now}.measure();
        EXPECT_LE(std::chrono::abs(measured.offset), 4 * kFarthest);
      }
    }
    const auto sign =
        parseLifeSign(toBytes(PulseBeat{.busy = far, .training = {base::Doing::kMean, 0, far}}));
    ASSERT_TRUE(sign);
    EXPECT_GE(std::get<PulseBeat>(*sign).busy, 0s);
    EXPECT_LE(std::get<PulseBeat>(*sign).busy, kFarthest);
    EXPECT_GE(std::get<PulseBeat>(*sign).training.since, 0s);
    EXPECT_LE(std::get<PulseBeat>(*sign).training.since, kFarthest);
  }
}

// A changed byte needs the next version of the beat.
TEST(LifeSign, TheBytesOfVersion2AreFixed) {
  const auto bytes =
      toBytes(PulseBeat{.busy = 258ns, .training = {base::Doing::kMean, 0x0304, 5ns}});
  const std::vector<std::byte> expected = [] {
    std::vector<std::byte> all;
    for (const int byte :
         {2, 2, 2, 1, 0, 0, 0, 0, 0, 0, 9, 4, 3, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0})
      all.push_back(static_cast<std::byte>(byte));
    return all;
  }();
  EXPECT_EQ(bytes, expected);
}

TEST(LifeSign, ABeatOfAnotherVersionIsRefused) {
  auto bytes = toBytes(PulseBeat{.busy = 1s, .training = {base::Doing::kMean, 0, 1s}});
  for (int version = 0; version < 256; ++version) {
    bytes[1] = static_cast<std::byte>(version);
    EXPECT_EQ(parseLifeSign(bytes).has_value(), version == 2) << version;
  }
}

TEST(LifeSign, AnUnknownPlaceIsReadAsElsewhere) {
  auto bytes = toBytes(PulseBeat{.busy = 1s, .training = {base::Doing::kMean, 7, 1s}});
  for (const int kind : {16, 99, 255}) {
    bytes[10] = static_cast<std::byte>(kind);
    const auto sign = parseLifeSign(bytes);
    ASSERT_TRUE(sign);
    EXPECT_EQ(std::get<PulseBeat>(*sign).training.doing, base::Doing::kElsewhere);
  }
}

TEST(LifeSign, AReasonIsReadWithControlCharactersEscaped) {
  const auto sign = parseLifeSign(toBytes(LossNotice{Rank{1}, Rank{2}, "\x1b[2J\nrank 3 is lost"}));
  EXPECT_EQ(std::get<LossNotice>(*sign).why, "\\x1b[2J\\nrank 3 is lost");
}

}  // namespace
}  // namespace sluice::fabric
