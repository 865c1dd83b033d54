#include <tools/bench/fabric/task.h>

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

TEST(FabricTask, TravelsAsText) {
  for (const FabricCase which :
       {FabricCase::kPair, FabricCase::kAllToAll, FabricCase::kOvertake, FabricCase::kIdle}) {
    const FabricTask task{.which = which,
                          .seconds = 1.5,
                          .warmUpSeconds = 0.25,
                          .rounds = 7,
                          .isFifo = true,
                          .outlivesLoss = true,
                          .busySeconds = 3};
    EXPECT_EQ(parseFabricTask(task.toText()).value(), task);
  }
}

TEST(FabricTask, HasDefaultsForAllButItsCase) {
  EXPECT_EQ(parseFabricTask(R"({"case": "alltoall"})").value(),
            FabricTask{.which = FabricCase::kAllToAll});
  for (const char* text :
       {"", "{}", "[]", R"({"case": 3})", R"({"case": "pair", "rounds": "many"})"}) {
    EXPECT_EQ(parseFabricTask(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(FabricReport, TravelsAsOneLine) {
  const FabricReport report{
      .receivedGbit = 23.5, .cpuSeconds = 1.25, .urgentMs = {3, 4.5}, .strangers = 7};
  const auto parsed = parseFabricReport(report.toText());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->receivedGbit, 23.5);
  EXPECT_EQ(parsed->cpuSeconds, 1.25);
  EXPECT_EQ(parsed->urgentMs, (std::vector<double>{3, 4.5}));
  EXPECT_EQ(parsed->strangers, 7U);
  EXPECT_EQ(report.toText().find('\n'), std::string::npos);
}

TEST(FabricReport, IsToldFromOtherLines) {
  for (const char* line :
       {"", "ready 17", "fabric-report ", "fabric-report {}", "fabric-report [1]"}) {
    EXPECT_FALSE(parseFabricReport(line)) << line;
  }
}

}  // namespace
}  // namespace sluice::bench
