#include <tools/bench/goodput.h>

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

TEST(Goodput, IsWhatTheReceiverGot) {
  const auto rate = parseIperf(
      R"({"end": {"sum_sent": {"bits_per_second": 2e9},
                   "sum_received": {"bits_per_second": 1147000000.5}}})");
  ASSERT_TRUE(rate.isOk()) << rate.status().toString();
  EXPECT_EQ(rate->bitsPerSecond, 1147000000U);
}

TEST(Goodput, AFailureIsToldInOneLine) {
  EXPECT_EQ(parseIperf("iperf3: oops").status().message(),
            "iperf3 could not measure the lab: unknown output");
  EXPECT_EQ(parseIperf(R"({"end": {}, "error": "unable to connect"})").status().message(),
            "iperf3 could not measure the lab: \"unable to connect\"");
  EXPECT_EQ(parseIperf(R"({"end": {"sum_received": {"bits_per_second": 0}}})").status().message(),
            "iperf3 could not measure the lab: nothing has arrived");
}

}  // namespace
}  // namespace sluice::bench
