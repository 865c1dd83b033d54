#include <tools/bench/yardstick.h>

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

TEST(Yardstick, ReadsTheOverallBandwidthOfUcxPerftest) {
  constexpr std::string_view kPrinted =
      "+--------------+--------------+\n"
      "|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |  "
      "average  |  "
      "overall  |\n"
      "                       20000      2.102  1440.080  1086.196      132.45     175.60         "
      "694        "
      " 921\n";
  const auto gbit = parseUcxPerftest(kPrinted);
  ASSERT_TRUE(gbit.isOk());
  EXPECT_NEAR(*gbit, 921 * 200'000 * 8e-9, 0.01);  // by its message rate
}

TEST(Yardstick, SaysWhatUcxPerftestPrintedInstead) {
  const auto gbit = parseUcxPerftest("[1] ucx_perftest: no such device\n");
  EXPECT_NE(gbit.status().message().find("no such device"), std::string::npos);
}

}  // namespace
}  // namespace sluice::bench
