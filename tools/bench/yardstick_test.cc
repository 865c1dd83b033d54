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

TEST(Yardstick, GoodputIsWhatTheReceiverGot) {
  const auto rate = parseIperf(
      R"({"end": {"sum_sent": {"bits_per_second": 2e9},
                   "sum_received": {"bits_per_second": 1147000000.5}}})");
  ASSERT_TRUE(rate.isOk()) << rate.status().toString();
  EXPECT_EQ(rate->bitsPerSecond, 1147000000U);
}

TEST(Yardstick, AFailureOfIperfIsToldInOneLine) {
  EXPECT_EQ(parseIperf("iperf3: oops").status().message(),
            "iperf3 could not measure the lab: unknown output");
  EXPECT_EQ(parseIperf(R"({"end": {}, "error": "unable to connect"})").status().message(),
            "iperf3 could not measure the lab: \"unable to connect\"");
  EXPECT_EQ(parseIperf(R"({"end": {"sum_received": {"bits_per_second": 0}}})").status().message(),
            "iperf3 could not measure the lab: nothing has arrived");
}

}  // namespace
}  // namespace sluice::bench
