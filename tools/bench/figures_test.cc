#include <tools/bench/figures.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sluice/data/timing/bounds.h>

namespace sluice::bench {
namespace {

using ::testing::ElementsAre;

TEST(Figures, AJobIsAsSlowAsItsSlowestWorker) {
  const std::vector<RankReport> ranks{
      {.ends = {10, 11, 16, 18},  // a mean of 8 / 3
       .cpuSeconds = 1,
       .wireBytes = 10,
       .payloadBytes = 8,
       .inversionMs = 3},
      {.ends = {10, 13, 16, 19},
       .cpuSeconds = 2,
       .wireBytes = 20,
       .payloadBytes = 16,
       .inversionMs = 1},
      {.cpuSeconds = 3, .wireBytes = 30, .payloadBytes = 24, .inversionMs = 2},  // only serves
  };
  const RunFigures run = combineRanks(ranks, Measure::kSlowestWorker).value();
  EXPECT_EQ(run.iterationSeconds, 3);
  EXPECT_DOUBLE_EQ(run.cpuSeconds, 2);
  EXPECT_EQ(run.wireBytes, 60);
  EXPECT_EQ(run.payloadBytes, 48);
  EXPECT_EQ(run.inversionMs, 3);
}

TEST(Figures, ThroughputCountsTheStepsOfAllWhileAllAreAtIt) {
  // From 2 to 8: three steps of the first, one and a half of the second.
  const std::vector<RankReport> ranks{
      {.ends = {0, 2, 4, 6, 8}}, {.ends = {2, 6, 10, 14}}, {.cpuSeconds = 3},  // only serves
  };
  EXPECT_DOUBLE_EQ(throughputIteration(ranks).value(), 6 * 2 / 4.5);
  EXPECT_DOUBLE_EQ(combineRanks(ranks, Measure::kThroughput).value().iterationSeconds, 6 * 2 / 4.5);
  EXPECT_DOUBLE_EQ(combineRanks(ranks, Measure::kSlowestWorker).value().iterationSeconds, 4);
}

TEST(Figures, ThroughputNeedsATimeWhenAllAreAtIt) {
  const std::vector<RankReport> ranks{{.ends = {0, 1}}, {.ends = {2, 5}}};
  EXPECT_EQ(combineRanks(ranks, Measure::kThroughput).status().code(), Code::kInvalidArgument);
}

TEST(Figures, AStrategyIsTheMedianOfItsRunsAndSaysHowFarTheyLieApart) {
  const std::vector<RunFigures> runs{
      {.iterationSeconds = 1.5}, {.iterationSeconds = 1.0}, {.iterationSeconds = 1.25}};
  const Figures figures = summarise({.boundSeconds = 1.0}, "p3", runs);
  EXPECT_THAT(figures.runs, ElementsAre(1.5, 1.0, 1.25));
  EXPECT_EQ(figures.iterationSeconds, 1.25);
  EXPECT_EQ(figures.spreadSeconds, 0.5);
  EXPECT_EQ(figures.overBound, 1.25);
}

TEST(Figures, AnAlgorithmThatSendsLessHasNoBound) {
  const std::vector<RunFigures> runs{{.iterationSeconds = 1}};
  const Figures figures = summarise({.boundSeconds = 2, .sendsEverything = false}, "pipe", runs);
  EXPECT_FALSE(figures.overBound.has_value());
  EXPECT_TRUE(toJson(figures)["over_bound"].is_null());
}

TEST(Figures, SpeedupsNeedTheBaseline) {
  std::vector<Figures> rows{{.algorithm = "p3", .iterationSeconds = 2},
                            {.algorithm = "kvstore", .iterationSeconds = 3}};
  compareWithKvstore(rows);
  EXPECT_EQ(rows[0].speedupOverKvstore, 1.5);
  EXPECT_EQ(rows[1].speedupOverKvstore, 1.0);
  std::vector<Figures> alone{{.algorithm = "p3", .iterationSeconds = 2}};
  compareWithKvstore(alone);
  EXPECT_FALSE(alone[0].speedupOverKvstore.has_value());
  EXPECT_TRUE(toJson(alone[0])["speedup_over_kvstore"].is_null());
}

TEST(Figures, TheBusiestLinkFollowsFromWhoServes) {
  struct Case {
    const char* servers;
    uint32_t world;
    double models;
  };
  for (const Case& c : {
           Case{"all", 1, 0}, Case{"all", 4, 1.5},  // 2(N-1)/N
           Case{"1", 4, 3},                         // one server answers three
           Case{"2", 4, 2},            // half a model to the other server, 3 halves of answers
           Case{"dedicated:1", 5, 4},  // answers to four workers
           Case{"dedicated:4", 8, 1},  // as much in as out
           Case{"dedicated:6", 8, 1},  // workers push a whole model each
       }) {
    EXPECT_DOUBLE_EQ(modelsOverBusiestLink(plan::parseRoles(c.servers, c.world).value()), c.models)
        << c.servers << " of " << c.world;
  }
}

TEST(Figures, ARacksUplinkCarriesWhatLeavesTheRack) {
  const plan::Roles roles = plan::parseRoles("all", 256).value();
  EXPECT_DOUBLE_EQ(modelsOut(roles, 16, 16), 16 * 2 * 240.0 / 256);
  EXPECT_DOUBLE_EQ(modelsOut(roles, 0, 256), 0);
  // The servers are in one half and the workers in the other.
  const plan::Roles apart = plan::parseRoles("dedicated:4", 8).value();
  EXPECT_DOUBLE_EQ(modelsOut(apart, 0, 4), 4);
  EXPECT_DOUBLE_EQ(modelsOut(apart, 4, 4), 4);
}

TEST(Figures, TheBusiestLinkAgreesWithTheBoundsOfPlan) {
  const Rate rate{8'000'000};
  for (const uint32_t ranks : {2U, 3U, 4U, 16U}) {
    EXPECT_DOUBLE_EQ(timing::shardedWireSeconds(ranks, 1e6, rate),
                     modelsOverBusiestLink(plan::parseRoles("all", ranks).value()));
  }
}

TEST(Figures, JsonBeginsWithTheAgreedFields) {
  std::vector<std::string> names;
  const auto json = toJson({.algorithm = "p3"});
  for (const auto& [name, value] : json.items()) names.push_back(name);
  names.resize(12);
  EXPECT_THAT(names, ElementsAre("profile", "algorithm", "workers", "ratio", "iteration_s",
                                 "spread_s", "bound_s", "over_bound", "speedup_over_kvstore",
                                 "cpu_s_per_iteration", "bytes_on_wire", "inversion_ms_p99"));
}

}  // namespace
}  // namespace sluice::bench
