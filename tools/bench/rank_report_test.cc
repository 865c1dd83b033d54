#include <tools/bench/rank_report.h>

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

TEST(RankReport, IsReadAsItWasWritten) {
  const RankReport report{.ends = {100.5, 101.75, 101.85},
                          .cpuSeconds = 0.5,
                          .wireBytes = 1e9,
                          .payloadBytes = 9e8,
                          .inversionMs = 0.25,
                          .utilisation = Utilisation{0.01, {1, 2}, {3, 4}}};
  const std::string line = report.toText();
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto read = parseRankReport(line);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->ends, report.ends);
  EXPECT_EQ(read->cpuSeconds, 0.5);
  EXPECT_EQ(read->wireBytes, 1e9);
  EXPECT_EQ(read->payloadBytes, 9e8);
  EXPECT_EQ(read->inversionMs, 0.25);
  ASSERT_TRUE(read->utilisation.has_value());
  EXPECT_EQ(read->utilisation->receivedBits, (std::vector<double>{3, 4}));
}

TEST(RankReport, OtherLinesAreNone) {
  for (const char* line :
       {"", "hello", "{}", "replay-report", "replay-report {", "replay-report {}"}) {
    EXPECT_FALSE(parseRankReport(line).has_value()) << line;
  }
}

}  // namespace
}  // namespace sluice::bench
