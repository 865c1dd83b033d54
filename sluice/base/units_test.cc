#include <sluice/base/units.h>

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

using namespace std::chrono_literals;

TEST(Units, DurationsAsPeopleWriteThem) {
  EXPECT_EQ(parseDuration("250ms").value(), 250ms);
  EXPECT_EQ(parseDuration(" 1.5 s ").value(), 1500ms);
  EXPECT_EQ(parseDuration("10").value(), 10s);
  EXPECT_EQ(parseDuration("2min").value(), 2min);
  EXPECT_EQ(parseDuration("7us").value(), 7us);
  for (const char* wrong : {"", "ms", "-1s", "3 parsecs", "1e300h", "nan"}) {
    EXPECT_EQ(parseDuration(wrong).status().code(), Code::kInvalidArgument) << wrong;
  }
}

TEST(Units, BytesByThousandsAndBy1024) {
  EXPECT_EQ(parseBytes("64KiB").value(), 65536U);
  EXPECT_EQ(parseBytes("64kb").value(), 64000U);
  EXPECT_EQ(parseBytes("1.5GiB").value(), 3ULL << 29);
  EXPECT_EQ(parseBytes("17").value(), 17U);
  EXPECT_FALSE(parseBytes("1gbit").isOk());
}

TEST(Units, RatesNeedAUnit) {
  EXPECT_EQ(parseRate("1gbit").value().bitsPerSecond, 1'000'000'000U);
  EXPECT_EQ(parseRate("1.2Gbit").value().bitsPerSecond, 1'200'000'000U);
  EXPECT_EQ(parseRate("2GB/s").value().bitsPerSecond, 16'000'000'000U);
  EXPECT_EQ(parseRate("2Gb/s").status().message(),
            "'2Gb/s' may be bits or bytes; write 1gbit, or 1GB/s with a capital B");
  EXPECT_EQ(parseRate("10").status().message(),
            "'10' is not understood; write it like 100mbit or 1.2gbit");
}

TEST(Units, Switches) {
  for (const char* on : {"on", "TRUE", "yes", "1"}) EXPECT_TRUE(parseSwitch(on).value()) << on;
  for (const char* off : {"off", "false", "No", "0"}) EXPECT_FALSE(parseSwitch(off).value()) << off;
  EXPECT_FALSE(parseSwitch("perhaps").isOk());
}

TEST(Units, Numbers) {
  EXPECT_EQ(parseInteger("-42").value(), -42);
  EXPECT_FALSE(parseInteger("4.2").isOk());
  EXPECT_DOUBLE_EQ(parseNumber("2.5e3").value(), 2500);
}

TEST(Units, DurationsArePrintedWithThreeDigits) {
  using Case = std::pair<Duration, std::string_view>;
  for (const auto& [d, text] :
       {Case{14999681935ns, "15s"}, Case{999600us, "1s"}, Case{999400us, "999ms"},
        Case{1500us, "1.5ms"}, Case{1234567ns, "1.23ms"}, Case{999ns, "999ns"}, Case{600s, "600s"},
        Case{12345600ms, "12346s"}, Case{0s, "0s"}, Case{-250ms, "-250ms"}}) {
    EXPECT_EQ(formatDuration(d), text);
  }
}

TEST(Units, WhatIsPrintedCanBeReadBack) {
  for (const Duration d :
       {Duration(0), Duration(1), Duration(1500us), Duration(250ms), Duration(90s)}) {
    EXPECT_EQ(parseDuration(formatDuration(d)).value(), d);
  }
  for (const uint64_t bits : {999ULL, 1'000'000ULL, 1'200'000'000ULL}) {
    EXPECT_EQ(parseRate(formatRate(Rate{bits})).value().bitsPerSecond, bits);
  }
  EXPECT_EQ(formatBytes(1536), "1.5 KiB");
  EXPECT_EQ(formatBytes(12), "12 B");
}

}  // namespace
}  // namespace sluice::base
