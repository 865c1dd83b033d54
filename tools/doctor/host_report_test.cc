#include <tools/doctor/host_report.h>

#include <gtest/gtest.h>

#include <tools/doctor/plants.h>
#include <tools/doctor/reach.h>

namespace sluice::doctor {
namespace {

TEST(HostReport, ComesBackAsItWas) {
  HostReport report;
  report.version = "0.1.0";
  report.torch = "2.6.0+cpu";
  report.host = "node3";
  report.localRank = 2;
  report.address = "10.0.0.3";
  report.master = {"10.0.0.1", "10.1.0.1"};
  report.settings = {{"encrypt", "auto"}};
  report.cpu = {.cpus = 8, .quota = 1.5, .load = 0.25};
  report.receiveBuffer = 6 << 20;
  const auto back = decodeHostReport(encode(report));
  ASSERT_TRUE(back.isOk());
  EXPECT_EQ(encode(*back), encode(report));
  EXPECT_EQ(back->master, report.master);
  EXPECT_EQ(back->receiveBuffer, report.receiveBuffer);
}

TEST(HostReport, SurvivesWhatAnotherRankSends) {
  EXPECT_FALSE(decodeHostReport("").isOk());
  EXPECT_FALSE(decodeHostReport("[1]").isOk());
  const auto odd = decodeHostReport(
      R"({"version": 3, "pid": -1, "master": 7, "settings": [1, {}], "load": "high", "host": "a\nb"})");
  ASSERT_TRUE(odd.isOk());
  EXPECT_EQ(odd->version, "");
  EXPECT_EQ(odd->host, "a\\nb");
  EXPECT_FALSE(decodeUnreachable("3", 4).isOk());
  const auto few = decodeUnreachable(R"({"2": "no answer", "9": "x", "y": 1, "1": {}})", 4);
  ASSERT_TRUE(few.isOk());
  EXPECT_EQ(few->at(2), "no answer");
  EXPECT_FALSE(few->contains(9));
}

TEST(HostReport, ReadsThisMachine) {
  const HostReport report = readHostReport(base::Config());
  EXPECT_FALSE(report.version.empty());
  EXPECT_GT(report.cpu.cpus, 0U);
  EXPECT_TRUE(report.settings.contains("encrypt"));
  EXPECT_GT(readCpuTicks().all, 0U);
}

TEST(HostReport, ReadsTheKernelsNumbers) {
  EXPECT_EQ(largestOf("4096\t131072\t6291456"), 6291456U);
  EXPECT_EQ(largestOf(""), 0U);
  EXPECT_DOUBLE_EQ(quotaOf("150000 100000"), 1.5);
  EXPECT_DOUBLE_EQ(quotaOf("max 100000"), 0);
  EXPECT_DOUBLE_EQ(quotaOf("-1 100000"), 0);
  EXPECT_DOUBLE_EQ(quotaOf(""), 0);
}

TEST(Plants, AreForOneRank) {
  const std::vector<std::string> texts{"clock=-90s@2", "version=0.0.1@1", "torch=1.9@2",
                                       "compute=2.5@2"};
  const auto plants = parsePlants(texts, 2);
  ASSERT_TRUE(plants.isOk());
  EXPECT_DOUBLE_EQ(plants->clockSeconds, -90);
  EXPECT_DOUBLE_EQ(plants->computeFactor, 2.5);
  EXPECT_EQ(plants->torch, "1.9");
  EXPECT_EQ(plants->version, "");
  for (const std::string wrong : {"clock", "clock=1s", "clock=x@1", "moon=1@1", "clock@1=2s"})
    EXPECT_FALSE(parsePlants({wrong}, 0).isOk()) << wrong;
}

TEST(Reach, SmallJobsTryAllRanksAndLargeOnesAFew) {
  EXPECT_EQ(ranksToTry(2, 4), (std::vector<uint32_t>{3, 0, 1}));
  EXPECT_EQ(ranksToTry(0, 1), std::vector<uint32_t>{});
  EXPECT_EQ(ranksToTry(0, 1000).size(), 10U);
}

}  // namespace
}  // namespace sluice::doctor
